// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"path/filepath"

	admissionv1 "k8s.io/api/admissionregistration/v1"

	"github.com/tranche-dra/tranche/cdi"
	"github.com/tranche-dra/tranche/cdi/libraries"
	"github.com/tranche-dra/tranche/deployments/static"
	"github.com/tranche-dra/tranche/deviceclasses"
	"github.com/tranche-dra/tranche/pkg/api/v1alpha1"
	"github.com/tranche-dra/tranche/pkg/card/nvml"
	"github.com/tranche-dra/tranche/pkg/doctor"
	"github.com/tranche-dra/tranche/pkg/driver"
	"github.com/tranche-dra/tranche/pkg/labels"
)

// checksOf are the checks of a node whose driver has that configuration. The
// caller calls done when they are through.
func checksOf(o *options, config *v1alpha1.NodeConfig, endpoint string) (checks []doctor.Check, done func(), err error) {
	cards, err := newHardware(config)
	if err != nil {
		return nil, nil, err
	}
	host := hostOf(config)
	installed := libraries.NewStore(config.RuntimeDir, config.RuntimeSource)
	current := func() (cdi.Runtime, error) {
		digest, err := installed.Current()
		if err != nil {
			return cdi.Runtime{}, err
		}
		return installed.Find(digest)
	}
	records := filepath.Join(config.StateDir, "claims")
	checks = []doctor.Check{
		{Name: "container runtime", Examiner: doctor.Runtime{Endpoint: endpoint, HostRoot: config.DriverRootMount, CDIRoot: config.CDIRoot}},
		{Name: "CDI directory", Examiner: doctor.CDIDirectory{Path: config.CDIRoot, Host: host}},
		{Name: "state directory", Examiner: doctor.StateDirectory(config.StateDir, host)},
	}
	for _, d := range doctor.KubeletDirectories(config.KubeletRoot, host) {
		checks = append(checks, doctor.Check{Name: "kubelet's directory", Examiner: d})
	}
	checks = append(checks,
		doctor.Check{Name: "driver", Examiner: doctor.Registration{KubeletRoot: config.KubeletRoot, Driver: driver.Name, MetricsAddress: *config.MetricsAddress}},
		doctor.Check{Name: "cards", Examiner: doctor.Cards{Lister: cards, Files: cards.files, Runtime: current, WhyNone: func() string { return whyNoCards(config) }}},
		doctor.Check{Name: "other plugins", Examiner: doctor.OtherPlugins{KubeletRoot: config.KubeletRoot, Cards: cards}},
		doctor.Check{Name: "records", Examiner: doctor.Records(records)},
		doctor.Check{Name: "sharing runtime", Examiner: doctor.SharingRuntime{Store: installed, Records: records}},
		doctor.Check{Name: "arbiter", Examiner: doctor.Arbiter{
			Shares: filepath.Join(config.StateDir, "shares"), Lock: filepath.Join(config.RunDir, "arbiter", "lock"),
		}},
	)
	cluster, err := clusterChecks(o, config, cards)
	return append(checks, cluster...), cards.close, err
}

// clusterChecks are those that ask the API server.
func clusterChecks(o *options, config *v1alpha1.NodeConfig, cards hardware) ([]doctor.Check, error) {
	const name = "API server"
	c, err := connect(o, config.NodeName)
	if err != nil {
		return []doctor.Check{{Name: name, Examiner: doctor.Known{{ //nolint:nilerr // it is a finding
			Level: doctor.Warning, Seen: err.Error(), Remedy: "run doctor in the driver's pod, or name a file: --kubeconfig",
		}}}}, nil
	}
	policies, bindings, err := policyNames()
	if err != nil {
		return nil, err
	}
	return []doctor.Check{
		{Name: name, Examiner: doctor.APIServer{Client: c.kubernetes, Forced: config.ForceOldKubernetes}},
		{Name: "published cards", Examiner: doctor.Slices{Client: c.kubernetes, Node: config.NodeName, Driver: driver.Name, Cards: cards}},
		{Name: "default policy", Examiner: doctor.DefaultPolicy{
			Client: c.kubernetes, Node: config.NodeName, Configured: labels.Configured{Policy: config.DefaultPolicy, By: o.defaultPolicyBy},
		}},
		{Name: "device classes", Examiner: doctor.Classes{Client: c.kubernetes, Names: deviceclasses.Names()}},
		{Name: "admission policies", Examiner: doctor.Policies{Client: c.kubernetes, Policies: policies, Bindings: bindings}},
	}, nil
}

// policyNames are the admission policies that come with this release.
func policyNames() (policies, bindings []string, err error) {
	objects, err := static.Objects()
	if err != nil {
		return nil, nil, err
	}
	for _, object := range objects {
		switch o := object.(type) {
		case *admissionv1.ValidatingAdmissionPolicy:
			policies = append(policies, o.Name)
		case *admissionv1.ValidatingAdmissionPolicyBinding:
			bindings = append(bindings, o.Name)
		}
	}
	return policies, bindings, nil
}

// whyNoCards says where cards were looked for.
func whyNoCards(config *v1alpha1.NodeConfig) string {
	if config.SimFleet != "" {
		return "there is no fleet file " + config.SimFleet + ", or it lists none"
	}
	library := nvml.Library(config.DriverRootMount)
	if ret := library.Init(); ret != 0 {
		return fmt.Sprintf("NVML does not start (%v); its library was looked for below %s and where the dynamic linker looks", ret, config.DriverRootMount)
	}
	_ = library.Shutdown() // only asked
	return "NVIDIA's driver runs and lists none"
}
