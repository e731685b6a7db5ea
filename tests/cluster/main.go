// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/tranche-dra/tranche/tests/cluster/internal/cluster"
)

const usage = `usage:
  tranche-cluster build                     build the cluster's programs, once
  tranche-cluster run [flags] -- CMD...     run CMD in a new cluster
  tranche-cluster image [flags] SRC=DST...  make a container image from files
  tranche-cluster ctl VERB [COMPONENT]      inside a cluster: status, stop, start, restart, kill

"tranche-cluster COMMAND --help" shows the flags.
`

// commands run one subcommand each and return the exit status.
var commands = map[string]func(args []string) (int, error){
	"build": build,
	"run":   run,
	"image": image,
	"ctl":   ctl,
	// What the program calls itself as.
	initCommand: runInit,
	nodeCommand: runNode,
}

func main() {
	code, err := dispatch(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		os.Exit(0)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "tranche-cluster: %v\n", err)
		if code == 0 {
			code = cluster.ExitBroken
		}
	}
	os.Exit(code)
}

func dispatch(args []string) (int, error) {
	if len(args) == 0 {
		fmt.Fprint(os.Stderr, usage)
		return 2, nil
	}
	command, ok := commands[args[0]]
	if !ok {
		fmt.Fprint(os.Stderr, usage)
		if args[0] == "help" || args[0] == "--help" || args[0] == "-h" {
			return 0, nil
		}
		return 2, fmt.Errorf("no such command: %s", args[0])
	}
	return command(args[1:])
}

// narrator tells the user how far things are, on standard error: standard output is the command's.
func narrator(begin time.Time) func(format string, args ...any) {
	return func(format string, args ...any) {
		fmt.Fprintf(os.Stderr, "[%5.1fs] %s\n", time.Since(begin).Seconds(), fmt.Sprintf(format, args...))
	}
}

// list is a flag that may be given several times.
type list []string

func (l *list) String() string { return strings.Join(*l, ", ") }

func (l *list) Set(value string) error {
	*l = append(*l, value)
	return nil
}
