// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"encoding/json"
	"net/http"

	"k8s.io/klog/v2"

	"github.com/tranche-dra/tranche/pkg/nodeview"
)

// DebugHandler answers who wants to know what the arbiter knows: package nodeview
// has what is asked and answered. It is for whoever may read everything on the node.
func (a *Arbiter) DebugHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+nodeview.CardsPath, func(w http.ResponseWriter, r *http.Request) {
		if err := a.Ready(); err != nil || !a.serving.Load() {
			http.Error(w, "another arbiter serves this node, or none yet", http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(a.View(r.Context())); err != nil {
			klog.FromContext(r.Context()).V(2).Info("Cannot answer what was asked", "reason", err.Error())
		}
	})
	return mux
}
