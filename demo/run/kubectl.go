// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
)

// kubectl calls the command line tool: the story is told with the commands that
// a reader would type. An empty kubeconfig leaves its choice to the tool.
type kubectl struct{ dir, program, kubeconfig string }

// run returns what the tool wrote to standard output.
func (k kubectl) run(ctx context.Context, args ...string) ([]byte, error) {
	var out bytes.Buffer
	if err := k.talk(ctx, nil, &out, args...); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// talk gives the tool what it reads, and takes what it writes to standard output, while
// it runs.
func (k kubectl) talk(ctx context.Context, in io.Reader, out io.Writer, args ...string) error {
	command := exec.CommandContext(ctx, k.program, args...)
	command.Dir = k.dir
	if k.kubeconfig != "" {
		command.Env = append(os.Environ(), clientcmd.RecommendedConfigPathEnvVar+"="+k.kubeconfig)
	}
	var problems bytes.Buffer
	command.Stdin, command.Stdout, command.Stderr = in, out, &problems
	command.WaitDelay = time.Second // for one that ended without reading all
	if err := command.Run(); err != nil {
		return fmt.Errorf("run kubectl %s: %w\n%s", strings.Join(args, " "), err, problems.String())
	}
	return nil
}

// podsIn are the pods among the objects that kubectl printed as JSON: one
// object, or a list of them.
func podsIn(printed []byte) ([]types.NamespacedName, error) {
	type object struct {
		Kind     string            `json:"kind"`
		Metadata metav1.ObjectMeta `json:"metadata"`
	}
	var list struct {
		object
		Items []object `json:"items"`
	}
	if err := json.Unmarshal(printed, &list); err != nil {
		return nil, fmt.Errorf("read what kubectl printed: %w", err)
	}
	var pods []types.NamespacedName
	for _, o := range append(list.Items, list.object) {
		if o.Kind == "Pod" {
			pods = append(pods, types.NamespacedName{Namespace: o.Metadata.Namespace, Name: o.Metadata.Name})
		}
	}
	return pods, nil
}
