// SPDX-License-Identifier: Apache-2.0

package whatif

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dra/tranche/pkg/view"
)

// Objects are what a file holds of what matters here.
type Objects struct {
	view.Objects
	Templates []resourceapi.ResourceClaimTemplate
	Nodes     []corev1.Node
	Rules     []resourceapi.DeviceTaintRule
	Classes   []resourceapi.DeviceClass
}

// Versions of what is read.
var (
	core = corev1.SchemeGroupVersion.String()
	dra  = resourceapi.SchemeGroupVersion.String()
)

// ErrVersion: the file has a kind in another version than the one that is read.
var ErrVersion = errors.New("this version is not read")

// Read reads YAML or JSON: lists as kubectl get prints them, or objects divided
// by "---". Objects of other kinds are passed over. file is for errors.
func Read(r io.Reader, file string) (Objects, error) {
	var found Objects
	documents := utilyaml.NewYAMLReader(bufio.NewReader(r))
	for number := 1; ; number++ {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		if err != nil {
			return found, fmt.Errorf("read %s: %w", file, err)
		}
		raw, err := yaml.YAMLToJSON(document)
		if err != nil {
			return found, fmt.Errorf("read %s, document %d: %w", file, number, err)
		}
		if err := found.add(raw, metav1.TypeMeta{}); err != nil {
			return found, fmt.Errorf("read %s, document %d: %w", file, number, err)
		}
	}
}

// add takes what the object is from of where it does not say: items of typed lists
// leave that out.
func (o *Objects) add(raw []byte, of metav1.TypeMeta) error {
	var head struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata"`
		Items             []json.RawMessage `json:"items"`
	}
	if string(raw) == "null" { // nothing between two lines of dashes
		return nil
	}
	if err := json.Unmarshal(raw, &head); err != nil {
		return fmt.Errorf("it is no Kubernetes object: %w", err)
	}
	if head.Kind == "" {
		head.TypeMeta = of
	}
	if head.Kind == "" {
		return errors.New("it is no Kubernetes object: it has no kind")
	}
	for i, item := range head.Items {
		is := metav1.TypeMeta{Kind: strings.TrimSuffix(head.Kind, "List"), APIVersion: head.APIVersion}
		if err := o.add(item, is); err != nil {
			return fmt.Errorf("item %d: %w", i+1, err)
		}
	}
	var err error
	switch head.Kind {
	case "ResourceSlice":
		o.Slices, err = decoded(o.Slices, raw, head.APIVersion, dra)
	case "ResourceClaim":
		o.Claims, err = decoded(o.Claims, raw, head.APIVersion, dra)
	case "ResourceClaimTemplate":
		o.Templates, err = decoded(o.Templates, raw, head.APIVersion, dra)
	case "DeviceTaintRule":
		o.Rules, err = decoded(o.Rules, raw, head.APIVersion, dra)
	case "DeviceClass":
		o.Classes, err = decoded(o.Classes, raw, head.APIVersion, dra)
	case "Node":
		o.Nodes, err = decoded(o.Nodes, raw, head.APIVersion, core)
	case "Pod":
		o.Pods, err = decoded(o.Pods, raw, head.APIVersion, core)
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", head.Kind, name(head.Namespace, head.Name), err)
	}
	return nil
}

func decoded[T any](to []T, raw []byte, version, want string) ([]T, error) {
	if version != want {
		return to, fmt.Errorf("it is of %s: %w: %s is", version, ErrVersion, want)
	}
	var object T
	if err := json.Unmarshal(raw, &object); err != nil {
		return to, err
	}
	return append(to, object), nil
}

func name(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}
