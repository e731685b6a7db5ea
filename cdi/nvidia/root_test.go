// SPDX-License-Identifier: Apache-2.0

package nvidia

import (
	"testing"

	"github.com/stretchr/testify/require"
	"tags.cncf.io/container-device-interface/specs-go"
)

func TestPathsBecomePathsOfTheHost(t *testing.T) {
	t.Parallel()
	host := Root{Host: "/", Here: "/"}
	for _, row := range []struct {
		name        string
		driver, dev Root
		// From and want are a library, a device node and a link that a hook makes.
		from, want [3]string
	}{
		{
			"a process on the host", host, host,
			[3]string{"/usr/lib64/libcuda.so.1.2", "/dev/dri/card0", "../card0::/dev/dri/by-path/pci-0000:1b:00.0-card"},
			[3]string{"/usr/lib64/libcuda.so.1.2", "/dev/dri/card0", "../card0::/dev/dri/by-path/pci-0000:1b:00.0-card"},
		},
		{
			"the host's root mounted at a directory",
			Root{Host: "/", Here: "/host"},
			Root{Host: "/", Here: "/host"},
			[3]string{"/host/usr/lib64/libcuda.so.1.2", "/host/dev/dri/card0", "../card0::/host/dev/dri/by-path/pci-0000:1b:00.0-card"},
			[3]string{"/usr/lib64/libcuda.so.1.2", "/dev/dri/card0", "../card0::/dev/dri/by-path/pci-0000:1b:00.0-card"},
		},
		{
			"a driver's root and the host's /dev mounted apart",
			Root{Host: "/run/nvidia/driver", Here: "/driver-root"},
			Root{Host: "/", Here: "/host"},
			[3]string{"/driver-root/usr/lib64/libcuda.so.1.2", "/host/dev/dri/card0", "../card0::/host/dev/dri/by-path/pci-0000:1b:00.0-card"},
			[3]string{"/run/nvidia/driver/usr/lib64/libcuda.so.1.2", "/dev/dri/card0", "../card0::/dev/dri/by-path/pci-0000:1b:00.0-card"},
		},
		{
			"device nodes with the driver that a container installed",
			Root{Host: "/run/nvidia/driver", Here: "/driver-root"},
			Root{Host: "/run/nvidia/driver", Here: "/driver-root"},
			[3]string{"/driver-root/usr/lib64/libcuda.so.1.2", "/driver-root/dev/dri/card0", "../card0::/driver-root/dev/dri/by-path/pci-0000:1b:00.0-card"},
			[3]string{"/run/nvidia/driver/usr/lib64/libcuda.so.1.2", "/run/nvidia/driver/dev/dri/card0", "../card0::/dev/dri/by-path/pci-0000:1b:00.0-card"},
		},
		{
			"a driver below the mount of the host",
			Root{Host: "/home/kubernetes/bin/nvidia", Here: "/host/home/kubernetes/bin/nvidia"},
			Root{Host: "/", Here: "/host"},
			[3]string{"/host/home/kubernetes/bin/nvidia/lib64/libcuda.so.1.2", "/host/dev/dri/card0", "../card0::/host/dev/dri/by-path/pci-0000:1b:00.0-card"},
			[3]string{"/home/kubernetes/bin/nvidia/lib64/libcuda.so.1.2", "/dev/dri/card0", "../card0::/dev/dri/by-path/pci-0000:1b:00.0-card"},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			spec := &specs.Spec{ContainerEdits: specs.ContainerEdits{
				Mounts:      []*specs.Mount{{HostPath: row.from[0], ContainerPath: "/usr/lib64/libcuda.so.1.2"}},
				DeviceNodes: []*specs.DeviceNode{{Path: "/dev/dri/card0", HostPath: row.from[1]}},
				Hooks:       []*specs.Hook{{HookName: "createContainer", Path: DefaultHookPath, Args: []string{"nvidia-cdi-hook", "--link", row.from[2]}}},
			}}
			require.NoError(t, toHost(row.driver, row.dev).Transform(spec))
			edits := spec.ContainerEdits
			require.Equal(t, row.want, [3]string{edits.Mounts[0].HostPath, edits.DeviceNodes[0].HostPath, edits.Hooks[0].Args[2]})
			require.Equal(t, "/usr/lib64/libcuda.so.1.2", edits.Mounts[0].ContainerPath)
			require.Equal(t, "/dev/dri/card0", edits.DeviceNodes[0].Path)
			require.Equal(t, DefaultHookPath, edits.Hooks[0].Path)
		})
	}
}
