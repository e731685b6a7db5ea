// SPDX-License-Identifier: Apache-2.0

// Command kube is etcd, the control plane, kubelet and kubectl in one binary.
//
// The components share most of their packages: one link and one file of some
// 160 MB instead of six that make 650 MB. The name that the binary is called by
// (a symbolic link) chooses the component, as with busybox.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // client-go's metrics in every component
	_ "k8s.io/component-base/metrics/prometheus/version"  // kubernetes_build_info
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// components runs each component until it ends and gives its exit status.
var components = map[string]func() int{
	"etcd":                    runEtcd,
	"kube-apiserver":          func() int { return run(apiserver.NewAPIServerCommand()) },
	"kube-controller-manager": func() int { return run(controllermanager.NewControllerManagerCommand()) },
	"kube-scheduler":          func() int { return run(scheduler.NewSchedulerCommand()) },
	"kubelet":                 func() int { return run(kubelet.NewKubeletCommand(context.Background())) },
	"kubectl":                 runKubectl,
}

func main() {
	component, ok := components[filepath.Base(os.Args[0])]
	if !ok {
		var names []string
		for name := range components {
			names = append(names, name)
		}
		slices.Sort(names)
		fmt.Fprintf(os.Stderr, "kube: call it by the name of a component, through a symbolic link: %s\n", strings.Join(names, ", "))
		os.Exit(2)
	}
	os.Exit(component())
}

func run(command *cobra.Command) int { return cli.Run(command) }

func runEtcd() int {
	etcdmain.Main(os.Args)
	return 0
}

// runKubectl prints errors in kubectl's own way instead of the components'.
func runKubectl() int {
	// kubectl reads -v before it parses its other flags: plugins are looked up in between.
	logs.GlogSetter(kubectl.GetLogVerbosity(os.Args))
	if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
		kubectlutil.CheckErr(err)
	}
	return 0
}
