// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/tranche-dra/tranche/tests/cluster/internal/config"
	"github.com/tranche-dra/tranche/tests/cluster/internal/pki"
)

// applyManifests applies them, and gives the scheduler the account among them that
// it is to run as.
func applyManifests(ctx context.Context, spec Spec) error {
	for _, file := range spec.Manifests {
		if _, err := kubectl(ctx, spec.Settings, "apply", "-f", file); err != nil {
			return err
		}
	}
	if spec.Settings.SchedulerAccount == "" {
		return nil
	}
	return schedulerKubeconfig(ctx, spec.Settings)
}

// schedulerKubeconfig replaces the certificate of system:kube-scheduler, which then
// nobody has, by a token of the account.
func schedulerKubeconfig(ctx context.Context, s config.Settings) error {
	namespace, name, _ := strings.Cut(s.SchedulerAccount, "/")
	// No cluster lasts longer.
	token, err := kubectl(ctx, s, "-n", namespace, "create", "token", name, "--duration=24h")
	if err != nil {
		return err
	}
	authority, err := os.ReadFile(s.PKI(pki.AuthorityFile))
	if err != nil {
		return fmt.Errorf("load authority: %w", err)
	}
	content := pki.TokenKubeconfig(config.Server, authority, strings.TrimSpace(token))
	var problems []error
	for _, ending := range []string{".crt", ".key"} {
		problems = append(problems, os.Remove(s.PKI(pki.Scheduler+ending)))
	}
	problems = append(problems, os.WriteFile(s.PKI(pki.Scheduler+".kubeconfig"), content, 0o600))
	if err := errors.Join(problems...); err != nil {
		return fmt.Errorf("write the scheduler's kubeconfig: %w", err)
	}
	return nil
}

func kubectl(ctx context.Context, s config.Settings, args ...string) (string, error) {
	command := exec.CommandContext(ctx, s.Binary("kubectl"), append([]string{"--kubeconfig=" + s.PKI(pki.Admin+".kubeconfig")}, args...)...)
	var out, problems bytes.Buffer
	command.Stdout, command.Stderr = &out, &problems
	if err := command.Run(); err != nil {
		return "", fmt.Errorf("run kubectl %s: %w\n%s", strings.Join(args, " "), err, problems.String())
	}
	return out.String(), nil
}
