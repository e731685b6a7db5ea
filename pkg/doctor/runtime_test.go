// SPDX-License-Identifier: Apache-2.0

package doctor_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/tranche-dra/tranche/pkg/doctor"
)

// containerRuntime answers what kubelet asks at its start.
type containerRuntime struct {
	cri.UnimplementedRuntimeServiceServer
	name, version, config string
	err                   error
}

func (c containerRuntime) Version(context.Context, *cri.VersionRequest) (*cri.VersionResponse, error) {
	return &cri.VersionResponse{RuntimeName: c.name, RuntimeVersion: c.version}, c.err
}

func (c containerRuntime) Status(_ context.Context, r *cri.StatusRequest) (*cri.StatusResponse, error) {
	if !r.GetVerbose() {
		return &cri.StatusResponse{}, nil
	}
	return &cri.StatusResponse{Info: map[string]string{"config": c.config}}, nil
}

func listen(t *testing.T, socket string, server cri.RuntimeServiceServer) {
	t.Helper()
	serve(t, socket, func(s *grpc.Server) { cri.RegisterRuntimeServiceServer(s, server) })
}

func TestWhatContainerRuntimesSayOfCDI(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		server cri.RuntimeServiceServer
		want   want
	}{
		"containerd 2 reads our directory under its other name": {
			containerRuntime{name: "containerd", version: "v2.4.2", config: `{"cdiSpecDirs":["/etc/cdi","/run/cdi"]}`},
			want{doctor.OK, "containerd v2.4.2 at ", ""},
		},
		"containerd 2 reads other directories": {
			containerRuntime{name: "containerd", version: "v2.4.2", config: `{"cdiSpecDirs":["/etc/cdi","/opt/cdi"]}`},
			want{doctor.Problem, "reads CDI specs in /etc/cdi and /opt/cdi, and not in /var/run/cdi", "cdi_spec_dirs"},
		},
		"containerd 2 reads no directory": {
			containerRuntime{name: "containerd", version: "v2.4.2", config: `{"cdiSpecDirs":[]}`},
			want{doctor.Problem, "CDI is off in containerd v2.4.2", "add /var/run/cdi to cdi_spec_dirs"},
		},
		"containerd 1.7 as it is installed": {
			containerRuntime{name: "containerd", version: "1.7.24", config: `{"enableCDI":false,"cdiSpecDirs":["/etc/cdi","/var/run/cdi"]}`},
			want{doctor.Problem, "CDI is off in containerd 1.7.24", "enable_cdi = true"},
		},
		"containerd 1.7 with CDI on": {
			containerRuntime{name: "containerd", version: "1.7.24~ds1", config: `{"enableCDI":true,"cdiSpecDirs":["/etc/cdi","/var/run/cdi"]}`},
			want{doctor.OK, "reads CDI specs in /var/run/cdi", ""},
		},
		"a release candidate of containerd 1.7": {
			containerRuntime{name: "containerd", version: "v1.7.0-rc.1", config: `{"enableCDI":true,"cdiSpecDirs":["/var/run/cdi"]}`},
			want{doctor.OK, "v1.7.0-rc.1", ""},
		},
		"containerd 1.6": {
			containerRuntime{name: "containerd", version: "1.6.20", config: `{}`},
			want{doctor.Problem, "containerd 1.6.20 at ", "upgrade to containerd 2"},
		},
		"CRI-O, which does not tell": {
			containerRuntime{name: "cri-o", version: "1.36.0", config: `{"sandboxImage":"pause"}`},
			want{doctor.Warning, "does not tell whether it reads CDI specs in /var/run/cdi", "crio status config"},
		},
		"CRI-O from before CDI": {
			containerRuntime{name: "cri-o", version: "1.22.5", config: `{}`},
			want{doctor.Problem, "too old", "upgrade CRI-O"},
		},
		"a configuration that is no JSON": {
			containerRuntime{name: "other", version: "x", config: `cdi = true`},
			want{doctor.Warning, "does not tell", "cdi_spec_dirs"},
		},
		"a containerd that does not serve kubelet, as Docker's": {
			cri.UnimplementedRuntimeServiceServer{},
			want{doctor.Problem, "it does not serve kubelet", "--runtime-endpoint"},
		},
		"a runtime that is broken": {
			containerRuntime{err: status.Error(codes.Internal, "no disk")},
			want{doctor.Problem, "no disk", "log"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			socket := filepath.Join(shortDir(t), "r.sock")
			listen(t, socket, tc.server)
			check := doctor.Runtime{Endpoint: "unix://" + socket, HostRoot: t.TempDir(), CDIRoot: "/var/run/cdi"}
			requireFindings(t, []want{tc.want}, check.Examine(t.Context()))
		})
	}
}

func TestWhereTheContainerRuntimeIsLookedFor(t *testing.T) {
	t.Parallel()
	good := containerRuntime{name: "containerd", version: "v2.4.2", config: `{"cdiSpecDirs":["/var/run/cdi"]}`}
	for name, tc := range map[string]struct {
		prepare  func(t *testing.T, host string)
		endpoint string
		want     want
	}{
		"below the host's root": {
			func(t *testing.T, host string) { listen(t, host+"/run/containerd/containerd.sock", good) },
			"",
			want{doctor.OK, "/run/containerd/containerd.sock", ""},
		},
		"a socket in an odd place, named as the host knows it": {
			func(t *testing.T, host string) { listen(t, host+"/odd/c.sock", good) },
			"/odd/c.sock",
			want{doctor.OK, "/odd/c.sock", ""},
		},
		"Docker's containerd beside the one that kubelet uses": {
			func(t *testing.T, host string) {
				listen(t, host+"/run/containerd/containerd.sock", cri.UnimplementedRuntimeServiceServer{})
				listen(t, host+"/run/k3s/containerd/containerd.sock", good)
			},
			"",
			want{doctor.OK, "/run/k3s/containerd/containerd.sock", ""},
		},
		"a runtime that has died": {
			func(t *testing.T, host string) { abandoned(t, host+"/run/crio/crio.sock") },
			"",
			want{doctor.Problem, "connection refused", "log"},
		},
		"no socket anywhere": {
			func(*testing.T, string) {}, "/none.sock", want{doctor.Warning, "at /none.sock, below / and ", "--runtime-endpoint"},
		},
		"a file that is no socket": {
			func(t *testing.T, host string) { require.NoError(t, os.WriteFile(host+"/c.sock", nil, 0o600)) },
			"/c.sock",
			want{doctor.Warning, "no socket", "--runtime-endpoint"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			host := shortDir(t)
			tc.prepare(t, host)
			check := doctor.Runtime{Endpoint: tc.endpoint, HostRoot: host, CDIRoot: "/var/run/cdi"}
			requireFindings(t, []want{tc.want}, check.Examine(t.Context()))
		})
	}
}

func TestACDIDirectoryIsTheRuntimesOrNot(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		level doctor.Level
		// link says that the driver sees the very directory of the host.
		link bool
	}{
		"mounted from where the runtime reads":                {doctor.OK, true},
		"of the same name, but another directory of the host": {doctor.Problem, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			host, here := shortDir(t), filepath.Join(shortDir(t), "cdi")
			there := filepath.Join(host, here)
			require.NoError(t, os.MkdirAll(there, 0o750))
			if tc.link {
				require.NoError(t, os.Symlink(there, here))
			} else {
				require.NoError(t, os.Mkdir(here, 0o750))
			}
			listen(t, host+"/c.sock", containerRuntime{name: "containerd", version: "v2.4.2", config: `{"cdiSpecDirs":["` + here + `"]}`})
			found := doctor.Runtime{Endpoint: "/c.sock", HostRoot: host, CDIRoot: here}.Examine(t.Context())
			require.Len(t, found, 1)
			require.Equal(t, tc.level, found[0].Level, found[0].Seen)
		})
	}
}

func FuzzRuntimeConfig(f *testing.F) {
	f.Add(`{"enableCDI":false,"cdiSpecDirs":["/etc/cdi"]}`)
	f.Add(`{"cdiSpecDirs":null}`)
	f.Add(`not JSON`)
	f.Fuzz(func(t *testing.T, text string) {
		found := doctor.JudgeContainerd(text)
		require.Len(t, found, 1)
		require.Equal(t, found[0].Level == doctor.OK, found[0].Remedy == "", "what is not fine has a remedy")
		require.NotEmpty(t, found[0].Seen)
	})
}
