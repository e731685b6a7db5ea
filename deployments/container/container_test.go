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

	"github.com/tranche-dra/tranche/cdi"
	"github.com/tranche-dra/tranche/pkg/api/v1alpha1"
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

	require.Contains(t, dockerfile, "CGO_ENABLED=1", "without cgo there is no NVML")
	built := strings.Fields(only(t, `go build .* -o /out/ (.*)`, dockerfile))
	require.Len(t, built, 2)
	makefile := read(t, filepath.Join(root, "Makefile"))
	for _, program := range built {
		require.Contains(t, read(t, filepath.Join(root, program, "main.go")), "version =", "-X sets a variable that exists")
		name := filepath.Base(program)
		image := only(t, `(?s)FROM \S+ AS `+name+`\n(.*?ENTRYPOINT[^\n]*)`, dockerfile)
		require.Equal(t, "/out/"+name+" /usr/bin/"+name, only(t, `COPY --from=build (/out/.*)`, image))
		require.Equal(t, "/usr/bin/"+name, only(t, `ENTRYPOINT \["(\S+)"\]`, image))
		require.Contains(t, makefile, "--entrypoint /usr/bin/"+name, "the test cluster's image starts the same")
	}
}

// What a program says of itself is the tag of its image.
func TestProgramsAreBuiltWithTheirVersion(t *testing.T) {
	t.Parallel()
	joined := func(path string) string { return strings.ReplaceAll(read(t, path), "\\\n", "") }
	stages := strings.SplitSeq(joined("Dockerfile"), "\nFROM ")
	for stage := range stages {
		if build := regexp.MustCompile(`go (-C \S+ )?build .*`).FindString(stage); build != "" {
			require.Contains(t, build, "${VERSION}")
			require.Contains(t, stage, "\nARG VERSION=", "an argument holds for its stage")
		}
	}
	const stamp = `\.gitVersion=.*\+tranche\.(\S*VERSION[)}])`
	only(t, stamp, joined("Dockerfile"))
	only(t, stamp, joined(filepath.Join(root, "Makefile")))
	for _, file := range []string{"README.md", "deployments/static/scheduler/README.md"} {
		builds := regexp.MustCompile(`docker build -f \S+Dockerfile .*`).FindAllString(read(t, filepath.Join(root, file)), -1)
		require.NotEmpty(t, builds, file)
		for _, build := range builds {
			require.Contains(t, build, "--build-arg VERSION=", file)
		}
	}
}

// The driver's image brings the libraries where the driver looks for them.
func TestTheLibrariesAreWhereTheyAreLookedFor(t *testing.T) {
	t.Parallel()
	release := cdi.Runtime{Dir: v1alpha1.DefaultRuntimeSource}
	for _, name := range cdi.Substituted() {
		for _, file := range []string{release.Library(name), release.Simulated(name)} {
			part := filepath.Base(filepath.Dir(file))
			dockerfile := only(t, `COPY --from=build /src/(build/native/release/`+part+`) `+filepath.Dir(file)+`\n`, read(t, "Dockerfile"))
			makefile := only(t, ` \$\(NATIVE\)/(`+part+`)=`+filepath.Dir(file)+`\b`, read(t, filepath.Join(root, "Makefile")))
			require.Equal(t, filepath.Base(dockerfile), makefile)
			require.Contains(t, read(t, filepath.Join(root, "cdi", "native.mk")), "$(NATIVE)/"+part+"/"+filepath.Base(file)+":", "it is built there")
		}
	}
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
