// SPDX-License-Identifier: Apache-2.0

package node

import (
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/tranche-dra/tranche/tests/cluster/internal/config"
)

// Spec is what the outer process tells the inner one.
type Spec struct {
	Settings config.Settings
	// Tool is the path of tranche-cluster.
	Tool string
	// Images are archives to import before the node is there.
	Images []string
	// Manifests are applied as soon as the API server is there.
	Manifests []string
	// Command is run once the node is Ready. It may be empty where Keep is set.
	Command []string
	// Dir is where it runs.
	Dir string
	// Keep opens a shell after the command.
	Keep bool
	// Begin is when the outer process began, for elapsed times.
	Begin time.Time
	// ReadyTimeout bounds the way to Ready, Timeout the command; 0 is no bound.
	ReadyTimeout, Timeout time.Duration
}

// Save writes the spec to a file.
func (s Spec) Save(file string) error {
	content, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("encode run: %w", err)
	}
	if err := os.WriteFile(file, content, 0o600); err != nil {
		return fmt.Errorf("save run: %w", err)
	}
	return nil
}

// Load reads a spec that Save wrote.
func Load(file string) (Spec, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return Spec{}, fmt.Errorf("load run: %w", err)
	}
	var s Spec
	if err := json.Unmarshal(content, &s); err != nil {
		return Spec{}, fmt.Errorf("decode run: %w", err)
	}
	return s, nil
}
