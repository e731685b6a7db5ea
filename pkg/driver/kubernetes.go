// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/discovery"
)

// minimum is the first version that allocates shares rightly: before it, the
// next card is not tried when one is full, and a claim for two cards gets the
// same card twice.
const minimum = "1.36.0-0"

// featureSharing is the API server's feature without which no card is shared.
const featureSharing = "DRAConsumableCapacity"

// sharing decides whether this cluster can share cards. One goroutine uses it.
type sharing struct {
	server discovery.ServerVersionInterfaceWithContext
	force  bool
	// version last seen, empty before.
	version string
	// droppedBy is the version of the API server that dropped the fields.
	droppedBy string
	// why cards are not shared, empty when they are.
	why string
}

// decide tells whether cards can be shared; s.why says why not. A "yes" is
// final until fieldsDropped, a "no" is looked at again every time, because
// clusters are upgraded. The error says that the API server did not tell.
func (s *sharing) decide(ctx context.Context) (bool, error) {
	if s.version != "" && s.why == "" {
		return true, nil
	}
	info, err := s.server.ServerVersionWithContext(ctx)
	if err != nil {
		return false, fmt.Errorf("read the version of Kubernetes: %w", err)
	}
	s.version = info.GitVersion
	if s.droppedBy != s.version {
		s.droppedBy = ""
	}
	s.why = s.reason()
	return s.why == "", nil
}

func (s *sharing) reason() string {
	if s.droppedBy != "" {
		return fmt.Sprintf("cards are published whole: the API server (%s) dropped the fields of shared cards; "+
			"enable the feature gate %s on kube-apiserver, kube-scheduler, kube-controller-manager and kubelet, then restart tranche-node",
			s.droppedBy, featureSharing)
	}
	found, err := version.ParseGeneric(s.version)
	if err != nil || s.force {
		return "" // a version that cannot be read is no reason to refuse
	}
	if found.LessThan(version.MustParseGeneric(minimum)) {
		return fmt.Sprintf("cards are published whole: Kubernetes %s allocates shares wrongly (full cards block others, two cards can be the same one); "+
			"upgrade to 1.36 or later, or set forceOldKubernetes", s.version)
	}
	return ""
}

// fieldsDropped remembers that this API server cannot store shared cards.
func (s *sharing) fieldsDropped() {
	s.droppedBy = s.version
	s.why = s.reason()
}
