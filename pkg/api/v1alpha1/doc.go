// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 holds the kinds of the API group tranche.dev: ShareConfig,
// the opaque parameters of DeviceClasses and ResourceClaims, ShareStatus, which is
// written into the status of a claim, NodeConfig, the configuration file of
// tranche-node, and TrancheArgs, the arguments of the scheduler's plug-in; and the
// labels and annotations of the group. The node, the controller and the
// command line tools all read them through this package, so that a document means
// the same everywhere: decoding is strict, defaults are set in one place, and
// validation answers with field paths and with what is right.
//
// The package holds no state, and everything in it may be used concurrently.
// Fields that a later layer may set or leave alone are pointers: unset and zero
// are different things.
//
// +kubebuilder:object:generate=true
// +groupName=tranche.dev
package v1alpha1

//go:generate go tool -modfile=../../../tests/tools/go.mod controller-gen object:headerFile=boilerplate.go.txt paths=.
