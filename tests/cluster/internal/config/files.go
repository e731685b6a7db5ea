// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"text/template"

	"github.com/tranche-dra/tranche/tests/cluster/internal/pki"
)

//go:embed templates
var sources embed.FS

// stages are templates in kwok's own language, not in ours.
//
//go:embed kwok/stages.yaml
var stages []byte

// values are what the templates may use.
type values struct {
	Settings
	CNIDir, ContainerdSocket, NodeName, PauseImage, PodNetwork, StateDir, DNSIP string
	AuthorityFile, KubeletCertificate, KubeletKey                               string
}

// Files renders the configuration files, by their path below Settings.Etc.
func Files(s Settings) (map[string][]byte, error) {
	v := values{
		Settings: s,
		CNIDir:   s.Etc("cni"), ContainerdSocket: ContainerdSocket, NodeName: NodeName,
		PauseImage: PauseImage, PodNetwork: PodNetwork, StateDir: RunDir + "/containerd", DNSIP: DNSIP.String(),
		AuthorityFile: s.PKI(pki.AuthorityFile), KubeletCertificate: s.PKI(pki.Kubelet + ".crt"), KubeletKey: s.PKI(pki.Kubelet + ".key"),
	}
	// JSON's strings are strings in YAML and in TOML too, whatever a path has in it.
	templates, err := template.New("").Funcs(template.FuncMap{"quote": quote}).ParseFS(sources, "templates/*")
	if err != nil {
		return nil, fmt.Errorf("parse configuration templates: %w", err)
	}
	files := map[string][]byte{}
	for source, file := range map[string]string{
		"containerd.toml": "containerd.toml",
		"cni.conflist":    "cni/10-tranche.conflist",
		"kubelet.yaml":    "kubelet.yaml",
	} {
		var out bytes.Buffer
		if err := templates.ExecuteTemplate(&out, source, v); err != nil {
			return nil, fmt.Errorf("render %s: %w", source, err)
		}
		files[file] = out.Bytes()
	}
	files["kwok.yaml"] = stages
	files["scheduler.yaml"], err = schedulerConfig(s.SchedulerConfig, s.PKI(pki.Scheduler+".kubeconfig"))
	return files, err
}

func quote(text string) (string, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(text); err != nil {
		return "", fmt.Errorf("quote %q: %w", text, err)
	}
	return string(bytes.TrimSpace(out.Bytes())), nil
}
