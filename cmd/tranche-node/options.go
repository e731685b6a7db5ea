// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tranche-dra/tranche/pkg/api/v1alpha1"
	"github.com/tranche-dra/tranche/pkg/share"
)

// options are the command line. Flags that were given win over the file.
type options struct {
	getenv     func(string) string
	file       string
	kubeconfig string
	podUID     string
	nodeUID    string

	given     *pflag.FlagSet
	overrides []override
	// defaultPolicyBy says who chose the configuration's default policy.
	defaultPolicyBy string
}

// override puts the value of one flag in its place in the configuration, which
// the file calls field.
type override struct {
	flag  string
	field string
	apply func(*v1alpha1.NodeConfig)
}

const (
	// nodeNameFlag has an environment variable as well.
	nodeNameFlag = "node-name"
	// defaultPolicyFlag has a label of the node as well, which wins.
	defaultPolicyFlag = "default-policy"
)

func newOptions(getenv func(string) string) *options { return &options{getenv: getenv} }

func (o *options) addTo(flags *pflag.FlagSet) {
	o.given = flags
	flags.StringVar(&o.file, "config", "", "`file` with a NodeConfig; flags that are given win over it")
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "`file` to reach the API server with; needed outside of a cluster only")
	flags.StringVar(&o.podUID, "pod-uid", "", "`UID` of this pod, which keeps two instances apart during a rolling update (default $POD_UID)")
	flags.StringVar(&o.nodeUID, "node-uid", "", "`UID` of the node's object (default: as the service account's token says, else it is looked up)")

	o.text(nodeNameFlag, "nodeName", "`name` of this node (default $NODE_NAME)", func(c *v1alpha1.NodeConfig, v string) { c.NodeName = v })
	o.text("kubelet-root", "kubeletRoot", "kubelet's `directory` (default "+v1alpha1.DefaultKubeletRoot+")", func(c *v1alpha1.NodeConfig, v string) { c.KubeletRoot = v })
	o.text("cdi-root", "cdiRoot", "`directory` for CDI specs (default "+v1alpha1.DefaultCDIRoot+")", func(c *v1alpha1.NodeConfig, v string) { c.CDIRoot = v })
	o.text("state-dir", "stateDir", "`directory` for records and shares, on a disk (default "+v1alpha1.DefaultStateDir+")", func(c *v1alpha1.NodeConfig, v string) { c.StateDir = v })
	o.text("run-dir", "runDir", "`directory` for simulated cards, which may be in memory (default "+v1alpha1.DefaultRunDir+")", func(c *v1alpha1.NodeConfig, v string) { c.RunDir = v })
	o.text("runtime-dir", "runtimeDir", "`directory` of the libraries that containers mount (default: runtime in --state-dir)", func(c *v1alpha1.NodeConfig, v string) { c.RuntimeDir = v })
	o.text("runtime-source", "runtimeSource", "`directory` of the libraries that come with this driver (default "+v1alpha1.DefaultRuntimeSource+")", func(c *v1alpha1.NodeConfig, v string) { c.RuntimeSource = v })
	o.text("driver-root", "driverRoot", "`directory` of the host that the graphics driver is installed under (default "+v1alpha1.DefaultDriverRoot+")", func(c *v1alpha1.NodeConfig, v string) { c.DriverRoot = v })
	o.text("driver-root-mount", "driverRootMount", "`directory` where this process sees --driver-root (default: the same)", func(c *v1alpha1.NodeConfig, v string) { c.DriverRootMount = v })
	o.text("cards", "cardSource", "`source` that cards are looked for in: auto, nvml or sim (default auto: sim if --sim-fleet is given, else nvml)", func(c *v1alpha1.NodeConfig, v string) { c.CardSource = v1alpha1.CardSource(v) })
	o.text("sim-fleet", "simFleet", "`file` that lists simulated cards", func(c *v1alpha1.NodeConfig, v string) { c.SimFleet = v })
	o.text(defaultPolicyFlag, "defaultPolicy", "`policy` of shares that name none, unless the node has the label "+v1alpha1.LabelDefaultPolicy+": "+policies()+" (default "+string(v1alpha1.DefaultPolicy)+")", func(c *v1alpha1.NodeConfig, v string) { c.DefaultPolicy = share.Policy(v) })
	o.text("metrics-address", "metricsAddress", "`host:port` of /metrics, /readyz and /healthz, empty for none (default "+v1alpha1.DefaultMetricsAddress+")", func(c *v1alpha1.NodeConfig, v string) { c.MetricsAddress = &v })
	o.text("health-address", "healthAddress", "`host:port` of the gRPC health service, empty for none (default "+v1alpha1.DefaultHealthAddress+")", func(c *v1alpha1.NodeConfig, v string) { c.HealthAddress = &v })

	slots := flags.Int("slots", 0, fmt.Sprintf("the most shares that one card takes (default %d)", v1alpha1.DefaultSlotsPerCard))
	o.override("slots", "slotsPerCard", func(c *v1alpha1.NodeConfig) { c.SlotsPerCard = slots })
	arbiter := flags.Duration("arbiter-timeout", 0, "how long preparing a claim waits for tranche-arbiter (default "+v1alpha1.DefaultArbiterTimeout.String()+")")
	o.override("arbiter-timeout", "arbiterTimeout", func(c *v1alpha1.NodeConfig) { c.ArbiterTimeout = &metav1.Duration{Duration: *arbiter} })
	force := flags.Bool("force-old-kubernetes", false, "share cards even where Kubernetes is too old to allocate shares rightly")
	o.override("force-old-kubernetes", "forceOldKubernetes", func(c *v1alpha1.NodeConfig) { c.ForceOldKubernetes = *force })
}

func (o *options) text(name, in, usage string, set func(*v1alpha1.NodeConfig, string)) {
	value := o.given.String(name, "", usage)
	o.override(name, in, func(c *v1alpha1.NodeConfig) { set(c, *value) })
}

func (o *options) override(name, in string, apply func(*v1alpha1.NodeConfig)) {
	o.overrides = append(o.overrides, override{name, in, apply})
}

// config is file, flags, environment and defaults together, validated.
func (o *options) config() (*v1alpha1.NodeConfig, error) {
	config := v1alpha1.NewNodeConfig()
	if o.file != "" {
		raw, err := os.ReadFile(o.file)
		if err != nil {
			return nil, fmt.Errorf("read configuration: %w", err)
		}
		if config, err = v1alpha1.DecodeNodeConfig(raw); err != nil {
			return nil, fmt.Errorf("read configuration %s: %w", o.file, err)
		}
	}
	o.defaultPolicyBy = "built in"
	if config.DefaultPolicy != "" {
		o.defaultPolicyBy = "file " + o.file
	}
	if o.given.Changed(defaultPolicyFlag) {
		o.defaultPolicyBy = "flag --" + defaultPolicyFlag
	}
	for _, f := range o.overrides {
		if o.given.Changed(f.flag) {
			f.apply(config)
		}
	}
	config.NodeName = cmp.Or(config.NodeName, o.getenv("NODE_NAME"))
	o.podUID = cmp.Or(o.podUID, o.getenv("POD_UID"))
	v1alpha1.SetNodeDefaults(config)
	if err := o.withFlags(config.Validate(nil)).ToAggregate(); err != nil {
		return nil, fmt.Errorf("check configuration: %w", err)
	}
	return config, nil
}

// withFlags makes errors name, beside the field, what sets it on the command line.
func (o *options) withFlags(errs field.ErrorList) field.ErrorList {
	for _, err := range errs {
		for _, f := range o.overrides {
			if f.field != err.Field {
				continue
			}
			err.Field += " (--" + f.flag
			if f.flag == nodeNameFlag {
				err.Field += " or $NODE_NAME"
			}
			err.Field += ")"
			break
		}
	}
	return errs
}

// policies lists them for people.
func policies() string {
	var names []string
	for _, p := range share.Policies() {
		names = append(names, string(p))
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}
