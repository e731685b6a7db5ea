// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"
)

const (
	schedulerGroup = "kubescheduler.config.k8s.io/"
	schedulerKind  = "KubeSchedulerConfiguration"
	// The default of 50 requests a second makes a scheduler of 13 pods a second.
	schedulerQPS, schedulerBurst = 1000, 2000
)

// schedulerConfig makes what a user wrote for any cluster one for this: a file
// cannot know the kubeconfig, and there is nobody to elect a leader against.
// Limits on requests are the user's where there are any.
func schedulerConfig(written, kubeconfig string) ([]byte, error) {
	document := map[string]any{"apiVersion": schedulerGroup + "v1", "kind": schedulerKind}
	if written != "" {
		var err error
		if document, err = oneDocument(written); err != nil {
			return nil, fmt.Errorf("read the scheduler's configuration: %w", err)
		}
	}
	connection, err := section(document, "clientConnection")
	if err != nil {
		return nil, err
	}
	connection["kubeconfig"] = kubeconfig
	if _, set := connection["qps"]; !set {
		connection["qps"], connection["burst"] = schedulerQPS, schedulerBurst
	}
	election, err := section(document, "leaderElection")
	if err != nil {
		return nil, err
	}
	election["leaderElect"] = false
	return yaml.Marshal(document)
}

func oneDocument(written string) (map[string]any, error) {
	decoder := yaml.NewDecoder(strings.NewReader(written))
	var document map[string]any
	if err := decoder.Decode(&document); err != nil {
		return nil, err
	}
	version, _ := document["apiVersion"].(string)
	if !strings.HasPrefix(version, schedulerGroup) || document["kind"] != schedulerKind {
		return nil, fmt.Errorf("it is a %v of %v, not a %s of %sv1", document["kind"], document["apiVersion"], schedulerKind, schedulerGroup)
	}
	if err := decoder.Decode(&map[string]any{}); !errors.Is(err, io.EOF) {
		return nil, errors.New("it has more than one document")
	}
	return document, nil
}

// section is a mapping below the document, made where it is missing.
func section(document map[string]any, name string) (map[string]any, error) {
	switch value := document[name].(type) {
	case nil:
		made := map[string]any{}
		document[name] = made
		return made, nil
	case map[string]any:
		return value, nil
	default:
		return nil, fmt.Errorf("read the scheduler's configuration: %s is not a mapping", name)
	}
}
