// SPDX-License-Identifier: Apache-2.0

// Package static holds the plain manifests of Tranche: the namespace, the
// permissions, the admission policies and the DaemonSet of tranche-node.
// `kubectl apply -f deployments/static/` takes them as they are; Go reads them
// through this package, so that tests judge the very files that are applied.
package static

import (
	"bufio"
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
)

//go:embed *.yaml
var files embed.FS

// Objects parses every manifest strictly, in the order of files and documents.
func Objects() ([]runtime.Object, error) {
	names, err := fs.Glob(files, "*.yaml")
	if err != nil {
		return nil, fmt.Errorf("list manifests: %w", err)
	}
	var objects []runtime.Object
	for _, name := range names {
		raw, err := files.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("read manifest %s: %w", name, err)
		}
		more, err := Decode(raw)
		if err != nil {
			return nil, fmt.Errorf("parse manifest %s: %w", name, err)
		}
		objects = append(objects, more...)
	}
	return objects, nil
}

// Decode parses the documents of a YAML stream into objects of Kubernetes' own
// API. Unknown kinds and fields that are unknown, misspelt or given twice are
// errors that name the document.
func Decode(stream []byte) ([]runtime.Object, error) {
	decoder := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	reader := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(stream)))
	var objects []runtime.Object
	for n := 1; ; n++ {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read document %d: %w", n, err)
		}
		var content any
		if err := yaml.Unmarshal(document, &content); err != nil {
			return nil, fmt.Errorf("read document %d: %w", n, err)
		}
		if content == nil {
			continue
		}
		object, _, err := decoder.Decode(document, nil, nil)
		if err != nil {
			return nil, fmt.Errorf("decode document %d: %w", n, err)
		}
		objects = append(objects, object)
	}
}
