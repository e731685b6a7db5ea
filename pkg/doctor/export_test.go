// SPDX-License-Identifier: Apache-2.0

package doctor

// JudgeContainerd is what is found where containerd tells that configuration.
func JudgeContainerd(config string) []Finding {
	decoded, err := decodeRuntimeConfig(config)
	if err != nil && (decoded.EnableCDI != nil || decoded.SpecDirs != nil) {
		panic("half a configuration was used")
	}
	return Runtime{HostRoot: "/none", CDIRoot: "/none/cdi"}.judge(runtimeAnswer{name: "containerd", version: "2.0.0", config: decoded})
}
