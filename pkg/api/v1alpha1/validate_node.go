// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tranche-dra/tranche/pkg/share"
)

const (
	maxSlotsPerCard      = 128
	minReconcileInterval = time.Second
	// maxArbiterTimeout leaves some of the 45 s that kubelet waits for an answer.
	maxArbiterTimeout = 30 * time.Second
	// maxKubeletRoot is in bytes. kubelet dials the driver's sockets by their
	// paths, a unix socket's path has at most 107 bytes on Linux, and the
	// shortest unique one is plugins_registry/dra-<22 characters>-reg.sock.
	maxKubeletRoot = 107 - len("/plugins_registry/dra-0123456789012345678901-reg.sock")
)

// Validate checks a NodeConfig after SetNodeDefaults. Paths start at path, which
// may be nil.
func (c *NodeConfig) Validate(path *field.Path) field.ErrorList {
	errs := c.validateNodeName(path.Child("nodeName"))
	errs = append(errs, c.validatePaths(path)...)
	errs = append(errs, c.validateCards(path)...)
	errs = append(errs, validateAddress(c.MetricsAddress, path.Child("metricsAddress"))...)
	errs = append(errs, validateAddress(c.HealthAddress, path.Child("healthAddress"))...)
	if c.MetricsAddress != nil && c.HealthAddress != nil && *c.MetricsAddress != "" && *c.MetricsAddress == *c.HealthAddress {
		errs = append(errs, field.Duplicate(path.Child("healthAddress"), *c.HealthAddress))
	}
	if i := c.ReconcileInterval; i != nil && i.Duration < minReconcileInterval {
		errs = append(errs, field.Invalid(path.Child("reconcileInterval"), i.Duration.String(),
			"must be at least "+minReconcileInterval.String()))
	}
	if g := c.StaleGrace; g != nil && g.Duration <= 0 {
		errs = append(errs, field.Invalid(path.Child("staleGrace"), g.Duration.String(), "must be more than 0s"))
	}
	if a := c.ArbiterTimeout; a != nil && (a.Duration <= 0 || a.Duration > maxArbiterTimeout) {
		errs = append(errs, field.Invalid(path.Child("arbiterTimeout"), a.Duration.String(),
			"must be more than 0s and at most "+maxArbiterTimeout.String()))
	}
	return errs
}

func (c *NodeConfig) validateNodeName(path *field.Path) field.ErrorList {
	if c.NodeName == "" {
		return field.ErrorList{field.Required(path, "the node's name as the API server knows it")}
	}
	var errs field.ErrorList
	for _, why := range validation.IsDNS1123Subdomain(c.NodeName) {
		errs = append(errs, field.Invalid(path, c.NodeName, why))
	}
	return errs
}

func (c *NodeConfig) validatePaths(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, p := range []struct{ name, value string }{
		{"kubeletRoot", c.KubeletRoot},
		{"cdiRoot", c.CDIRoot},
		{"stateDir", c.StateDir},
		{"runDir", c.RunDir},
		{"runtimeDir", c.RuntimeDir},
		{"runtimeSource", c.RuntimeSource},
		{"driverRoot", c.DriverRoot},
		{"driverRootMount", c.DriverRootMount},
		{"simFleet", c.SimFleet},
	} {
		if p.name == "simFleet" && p.value == "" {
			continue
		}
		if !filepath.IsAbs(p.value) || strings.ContainsRune(p.value, 0) {
			errs = append(errs, field.Invalid(path.Child(p.name), p.value, "must be an absolute path"))
		}
	}
	if len(filepath.Clean(c.KubeletRoot)) > maxKubeletRoot {
		errs = append(errs, field.TooLong(path.Child("kubeletRoot"), c.KubeletRoot, maxKubeletRoot))
	}
	return errs
}

func (c *NodeConfig) validateCards(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if !isOneOf(c.CardSource, CardSources()) {
		errs = append(errs, field.NotSupported(path.Child("cardSource"), c.CardSource, CardSources()))
	}
	switch {
	case c.CardSource == CardsSim && c.SimFleet == "":
		errs = append(errs, field.Required(path.Child("simFleet"), "cardSource sim reads its cards from this file"))
	case c.CardSource == CardsNVML && c.SimFleet != "":
		errs = append(errs, field.Forbidden(path.Child("simFleet"), "cardSource nvml reads no fleet file: say sim or auto"))
	}
	if !isOneOf(c.DefaultPolicy, share.Policies()) {
		errs = append(errs, field.NotSupported(path.Child("defaultPolicy"), c.DefaultPolicy, share.Policies()))
	}
	if s := c.SlotsPerCard; s != nil && (*s < 1 || *s > maxSlotsPerCard) {
		errs = append(errs, field.Invalid(path.Child("slotsPerCard"), *s, fmt.Sprintf("must be 1 to %d", maxSlotsPerCard)))
	}
	if q := c.MemoryReserve; q != nil {
		// Value rounds up, so a fraction of a byte shows as a difference.
		n, exact := q.AsInt64()
		if !exact || n < 0 || n%(1<<20) != 0 {
			errs = append(errs, field.Invalid(path.Child("memoryReserve"), q.String(), "must be 0 or more, in steps of 1Mi"))
		}
	}
	return errs
}

func validateAddress(address *string, path *field.Path) field.ErrorList {
	if address == nil || *address == "" {
		return nil
	}
	_, port, err := net.SplitHostPort(*address)
	if err != nil {
		return field.ErrorList{field.Invalid(path, *address, "must be host:port or :port")}
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		return field.ErrorList{field.Invalid(path, *address, "the port must be a number of 0 to 65535")}
	}
	return nil
}
