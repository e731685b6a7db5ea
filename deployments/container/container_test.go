// SPDX-License-Identifier: Apache-2.0

// Package container_test judges the Dockerfile without Docker.
package container_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const root = "../.."

func read(t *testing.T, path string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Clean(path))
	require.NoError(t, err)
	return string(raw)
}

// only is the one match of the expression's group.
func only(t *testing.T, expression, text string) string {
	t.Helper()
	matches := regexp.MustCompile(expression).FindAllStringSubmatch(text, -1)
	require.Len(t, matches, 1, expression)
	return matches[0][1]
}

func TestDockerfileFitsTheSource(t *testing.T) {
	t.Parallel()
	dockerfile := read(t, "Dockerfile")
	language := only(t, `(?m)^go (\d+\.\d+)`, read(t, filepath.Join(root, "go.mod")))
	require.Equal(t, language, only(t, `FROM golang:(\d+\.\d+)`, dockerfile), "the image has the compiler that go.mod asks for")

	built := only(t, `go build .* (\./\S+)`, dockerfile)
	require.DirExists(t, filepath.Join(root, built))
	require.Contains(t, dockerfile, "CGO_ENABLED=1", "without cgo there is no NVML")
	require.Contains(t, read(t, filepath.Join(root, built, "main.go")), "var version =", "-X sets a variable that exists")

	entry := only(t, `ENTRYPOINT \["(\S+)"\]`, dockerfile)
	require.Equal(t, entry, only(t, `COPY --from=build \S+ (\S+)`, dockerfile))
	require.Contains(t, read(t, filepath.Join(root, "Makefile")), "--entrypoint "+entry, "the test cluster's image starts the same")
}

// An ignored directory is not there when the compiler looks for it.
func TestIgnoredFilesAreNotNeeded(t *testing.T) {
	t.Parallel()
	for line := range strings.Lines(read(t, "Dockerfile.dockerignore")) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		require.NotContains(t, []string{"cmd", "pkg", "cdi", "deployments", "deviceclasses", "go.mod", "go.sum", "*", "**"}, line)
	}
}
