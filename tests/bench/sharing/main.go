// SPDX-License-Identifier: Apache-2.0

// Command sharing measures how the compute of simulated cards is shared: by whom, how
// exactly, at what loss, and how fast it changes hands. It judges by what the cards say
// of who had them, never by what the sharing runtime says of itself.
//
// The same tenants can be given to another runtime (-preload, -library), or to nobody
// (-none), so that all are measured on the same card and, with -beside, in the same
// run.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/tranche-dra/tranche/tests/bench"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := begin(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench sharing:", err)
		os.Exit(1)
	}
}

// world is what all scenarios have in common.
type world struct {
	// length is how long tenants are watched, after they were at work for settling.
	length, settling time.Duration
	// realTime: the tenants' programs run before whatever else the machine does.
	realTime bool
	// traces is the directory for what happened, empty for nowhere.
	traces string
	// scenario that is measured now, and how often tenants were at work so far.
	scenario string
	plays    int
	// alone are the services' records without anybody beside them.
	alone map[string]record
}

// times is several times as long as tenants are watched otherwise.
func (w *world) times(n int) time.Duration { return time.Duration(n) * w.length }

// options are the flags.
type options struct {
	out, traces, only string
	seconds, settling int
	short, list       bool
	realTime          bool
	none, beside      bool
	matrix            bool
	other             contender
}

// list is a flag that may be given several times.
type list []string

func (l *list) String() string { return strings.Join(*l, " ") }

func (l *list) Set(value string) error {
	*l = append(*l, value)
	return nil
}

var errUsage = errors.New("wrong flags")

func parse(args []string) (options, error) {
	o := options{}
	flags := flag.NewFlagSet("sharing", flag.ContinueOnError)
	flags.StringVar(&o.out, "out", "build/bench", "directory of the report")
	flags.StringVar(&o.traces, "traces", "", "directory for the runs on each card, for people who look into a figure: "+scenariosFile+" there says which are whose")
	flags.StringVar(&o.only, "only", "", "measure what has a name that this regular expression finds")
	flags.IntVar(&o.seconds, "seconds", 12, "how long tenants are watched; figures over 10 s take at least that")
	flags.IntVar(&o.settling, "settling", 1, "seconds that tenants are at work before they are watched")
	flags.BoolVar(&o.realTime, "realtime", true, "let tenants run before whatever else the machine does, which is not to be measured")
	flags.BoolVar(&o.short, "short", false, "a selection, in less than a minute, without figures over 10 s")
	flags.BoolVar(&o.matrix, "matrix", false, "measure every division with all kernels, which takes a quarter of an hour more")
	flags.BoolVar(&o.list, "list", false, "only say what would be measured")
	flags.BoolVar(&o.none, "none", false, "without any runtime: the card's own turns")
	flags.BoolVar(&o.beside, "beside", false, "measure ours too; the other's figures are in the column of references")
	flags.StringVar(&o.other.preload, "preload", "", "file that tenants preload, instead of our runtime")
	flags.StringVar(&o.other.library, "library", "", "file that takes the place of libcuda, instead of our runtime")
	flags.StringVar(&o.other.name, "name", "other", "how the report calls the other runtime")
	flags.Var((*list)(&o.other.env), "env", "variable of the tenants, K=V, where {cores}, {memory} (MiB), {tenant} and {dir} are replaced; may be repeated")
	flags.Var((*list)(&o.other.files), "file", "file in the tenants' containers that another one stands in for, TARGET=SOURCE; may be repeated")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if wrong := o.wrong(flags); wrong != "" {
		return o, fmt.Errorf("%w: %s", errUsage, wrong)
	}
	if o.none {
		o.other.name, o.other.bare = "none", true
	}
	if o.other.preload != "" {
		var err error
		if o.other.preload, err = filepath.Abs(o.other.preload); err != nil {
			return o, err
		}
	}
	if o.short {
		o.seconds = min(o.seconds, 2)
	}
	return o, nil
}

// wrong is what is with the flags, each of which is right by itself, or empty.
func (o options) wrong(flags *flag.FlagSet) string {
	another := o.other.preload != "" || o.other.library != ""
	switch {
	case flags.NArg() > 0:
		return fmt.Sprintf("%q is no flag, and arguments are not taken", flags.Arg(0))
	case o.seconds < 1:
		return fmt.Sprintf("-seconds: %d is less than 1", o.seconds)
	case o.settling < 1:
		return fmt.Sprintf("-settling: %d is less than 1", o.settling)
	case o.none && another:
		return "-none is without any runtime, and -preload and -library are with another one"
	case o.beside && !o.none && !another:
		return "-beside needs whom to measure beside ours: -none, -preload or -library"
	}
	wrong := ""
	flags.Visit(func(f *flag.Flag) {
		if !another && slices.Contains([]string{"env", "file", "name"}, f.Name) {
			wrong = fmt.Sprintf("-%s is about another runtime: say which by -preload or -library", f.Name)
		}
	})
	for flag, pairs := range map[string][]string{"-env": o.other.env, "-file": o.other.files} {
		for _, pair := range pairs {
			if before, after, ok := strings.Cut(pair, "="); !ok || before == "" || flag == "-file" && after == "" {
				wrong = fmt.Sprintf("%s: %q has no name or no value: -help says how it is written", flag, pair)
			}
		}
	}
	return wrong
}

// contenders are who is measured: the first one's figures are the rows.
func (o options) contenders() []contender {
	mine := contender{name: "ours"}
	switch {
	case !o.none && o.other.preload == "" && o.other.library == "":
		return []contender{mine}
	case o.beside:
		return []contender{mine, o.other}
	default:
		return []contender{o.other}
	}
}

func (o options) chosen() ([]scenario, error) {
	only, err := regexp.Compile(o.only)
	if err != nil {
		return nil, err
	}
	chosen := slices.DeleteFunc(scenarios(o.matrix), func(s scenario) bool {
		return o.short && !s.short || !only.MatchString(s.name)
	})
	if len(chosen) == 0 {
		return nil, fmt.Errorf("%w: -only: nothing that would be measured is called %q: -list says what is", errUsage, o.only)
	}
	return chosen, nil
}

func begin(ctx context.Context, args []string) error {
	o, err := parse(args)
	if errors.Is(err, flag.ErrHelp) {
		return nil // it has been given
	}
	if err != nil {
		return err
	}
	chosen, err := o.chosen()
	if err != nil {
		return err
	}
	if o.list {
		for _, s := range chosen {
			fmt.Println(s.name)
		}
		return nil
	}
	for _, c := range o.contenders() {
		if err := c.check(); err != nil {
			return err
		}
	}
	if o.traces != "" {
		if err := openTraces(o.traces); err != nil {
			return err
		}
	}
	before, err := processors()
	if err != nil {
		return err
	}
	w := &world{
		length: time.Duration(o.seconds) * time.Second, settling: time.Duration(o.settling) * time.Second,
		realTime: o.realTime, traces: o.traces, alone: map[string]record{},
	}
	rows, failed := w.measure(ctx, chosen, o.contenders())
	if len(rows) == 0 {
		return failed
	}
	name := "sharing"
	if who := o.contenders()[0]; !who.ours() {
		name += "-" + who.name
	}
	if err := bench.Report(os.Stdout, name, o.out, rows); err != nil {
		return errors.Join(failed, err)
	}
	return errors.Join(failed, o.tellMachine(before, len(bench.Missed(rows)) > 0))
}

// tellMachine says whether the machine was the limit, of what missed its target too.
func (o options) tellMachine(before ticks, missed bool) error {
	after, err := processors()
	if err != nil {
		return err
	}
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return err
	}
	fmt.Print(machineWas(after.idleSince(before), strings.Join(strings.Fields(string(load))[:3], " "), missed))
	if o.traces != "" {
		fmt.Println("Runs of each card are in", filepath.Clean(o.traces))
	}
	return nil
}

// machineWas says how idle the machine was, in percent, and what that means.
func machineWas(idle float64, load string, missed bool) string {
	said := fmt.Sprintf("The machine's processors were idle for %.0f %% of the time; load now %s\n", idle, load)
	if missed {
		said += "Measure a NO of a busy machine again\n"
	}
	return said
}

// measure runs each scenario with each contender, in turn. Beside an error are the rows
// of the scenarios before.
func (w *world) measure(ctx context.Context, chosen []scenario, contenders []contender) ([]bench.Row, error) {
	var all []bench.Row
	for _, s := range chosen {
		var rows []bench.Row
		for _, c := range contenders {
			fmt.Fprintf(os.Stderr, "%s (%s)\n", s.name, c.name)
			w.scenario = s.name
			more, err := s.run(ctx, w, c)
			if why, ok := errors.AsType[unmeasured](err); ok {
				fmt.Fprintf(os.Stderr, "%s (%s): not measured: %v\n", s.name, c.name, err)
				rows = without(rows, s.name, c.name, why)
				continue
			}
			if err != nil {
				return append(all, rows...), fmt.Errorf("%s: %w", s.name, err)
			}
			for i := range more {
				more[i].Subject = s.name
			}
			rows = merge(rows, more, c.name)
		}
		all = append(all, rows...)
	}
	return all, nil
}

// without is rows where a contender's figures could not be taken.
func without(rows []bench.Row, scenario, name string, why unmeasured) []bench.Row {
	if rows == nil {
		return []bench.Row{{Metric: scenario, Missing: string(why)}}
	}
	for i := range rows {
		refer(&rows[i], name, "not measured")
	}
	return rows
}

// merge adds another's figures as references to the same rows.
func merge(rows, more []bench.Row, name string) []bench.Row {
	if rows == nil {
		return more
	}
	for i, r := range rows {
		for _, m := range more {
			if m.Metric == r.Metric {
				figure := fmt.Sprintf("%.4g", m.Value)
				if m.Missing != "" {
					figure = "not measured"
				}
				refer(&rows[i], name, figure)
			}
		}
	}
	return rows
}

// refer adds what another one reached in this run.
func refer(r *bench.Row, name, figure string) {
	r.Reference = strings.TrimPrefix(fmt.Sprintf("%s; %s here %s", r.Reference, name, figure), "; ")
	if r.Source == "" {
		r.Source = "this run"
	}
}
