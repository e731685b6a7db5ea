// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Group, Version and kinds as documents name them.
const (
	Group = "tranche.dev"
	// DriverName is the name of the DRA driver, in slices, claims and classes.
	DriverName      = "gpu." + Group
	Version         = "v1alpha1"
	KindShareConfig = "ShareConfig"
	KindNodeConfig  = "NodeConfig"
	KindShareStatus = "ShareStatus"
	KindTrancheArgs = "TrancheArgs"
)

// GroupVersion is what apiVersion says in every document of this package.
func GroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: Group, Version: Version}
}

// AddToScheme makes the kinds known to a scheme.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion(), &ShareConfig{}, &NodeConfig{}, &ShareStatus{}, &TrancheArgs{})
	return nil
}

// newScheme is a scheme that knows the kinds of this package and nothing else.
func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	if err := AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("register kinds of %s: %w", GroupVersion(), err)
	}
	return scheme, nil
}
