// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// Decode reads the opaque parameters of a device configuration, which are JSON.
// Fields that are unknown, given twice or written in another case are errors
// that name the field's path. The result is not yet validated.
func Decode(raw []byte) (*ShareConfig, error) {
	into := &ShareConfig{}
	if err := decodeStrict(raw, into, KindShareConfig, false); err != nil {
		return nil, fmt.Errorf("decode %s: %w", KindShareConfig, err)
	}
	return into, nil
}

// DecodeNodeConfig reads a configuration file, YAML or JSON, of exactly one
// document, as strictly as Decode. The result is neither defaulted nor validated.
func DecodeNodeConfig(raw []byte) (*NodeConfig, error) {
	document, err := onlyDocument(raw)
	if err != nil {
		return nil, fmt.Errorf("decode %s: %w", KindNodeConfig, err)
	}
	into := &NodeConfig{}
	if err := decodeStrict(document, into, KindNodeConfig, true); err != nil {
		return nil, fmt.Errorf("decode %s: %w", KindNodeConfig, err)
	}
	return into, nil
}

// knownKinds is made once: decoding a claim should not take longer than reading it.
var knownKinds = sync.OnceValues(newScheme)

// decodeStrict fills into, an empty object of the given kind. The serializer
// hands back an object beside some errors: only its error counts.
func decodeStrict(raw []byte, into runtime.Object, kind string, isYAML bool) error {
	if len(bytes.TrimSpace(raw)) == 0 {
		return ErrNotOneDocument
	}
	scheme, err := knownKinds()
	if err != nil {
		return err
	}
	serializer := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme, scheme,
		json.SerializerOptions{Yaml: isYAML, Strict: true})
	want := GroupVersion().WithKind(kind)
	_, got, err := serializer.Decode(raw, nil, into)
	switch {
	case runtime.IsNotRegisteredError(err), got != nil && *got != want:
		return fmt.Errorf("%w: found apiVersion %q, kind %q, want apiVersion %q, kind %q",
			ErrUnknownKind, got.GroupVersion(), got.Kind, want.GroupVersion(), kind)
	case err != nil:
		return err
	case into.GetObjectKind().GroupVersionKind() != want:
		// The serializer takes what is left out from the type it fills.
		return fmt.Errorf("%w: apiVersion and kind are required, want apiVersion %q, kind %q",
			ErrUnknownKind, want.GroupVersion(), kind)
	}
	return nil
}

// onlyDocument is the one document of a YAML stream that is not empty. Decoders
// read the first and are silent about the rest, so a second one would be lost.
func onlyDocument(raw []byte) ([]byte, error) {
	reader := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(raw)))
	var only []byte
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read document: %w", err)
		}
		if isBlank(document) {
			continue
		}
		if only != nil {
			return nil, fmt.Errorf("%w, found several", ErrNotOneDocument)
		}
		only = document
	}
	if only == nil {
		return nil, fmt.Errorf("%w, found none", ErrNotOneDocument)
	}
	return only, nil
}

// isBlank tells whether a document has nothing but comments and white space.
func isBlank(document []byte) bool {
	for line := range bytes.Lines(document) {
		line = bytes.TrimSpace(line)
		if len(line) > 0 && line[0] != '#' && !bytes.Equal(line, []byte("---")) {
			return false
		}
	}
	return true
}
