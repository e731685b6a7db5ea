// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tranche-dra/tranche/tests/cluster/internal/config"
	"github.com/tranche-dra/tranche/tests/cluster/internal/control"
	"github.com/tranche-dra/tranche/tests/cluster/internal/pki"
	"github.com/tranche-dra/tranche/tests/cluster/internal/supervisor"
)

// Say tells the user how far things are.
type Say func(format string, args ...any)

// Run brings the node up, runs the command, and returns the command's exit
// status. An error is about the cluster: it did not come up, or a component died.
func Run(ctx context.Context, spec Spec, say Say) (int, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if err := prepare(spec.Settings); err != nil {
		return 0, err
	}
	api, err := newAPI(spec.Settings)
	if err != nil {
		return 0, err
	}
	components := supervisor.New(components(spec.Settings, api)...)
	go func() { // ends with this process, or with the first death
		select {
		case death := <-components.Deaths():
			cancel(death)
		case <-ctx.Done():
		}
	}()
	if err := bringUp(ctx, spec, components, api, say); err != nil {
		return 0, explain(ctx, err)
	}
	listener, err := control.Listen(ctx, config.ControlSocket)
	if err != nil {
		return 0, err
	}
	controlled := make(chan error, 1)
	go func() { controlled <- control.Serve(ctx, listener, components) }()
	code, err := runCommands(ctx, spec, say)
	if err != nil {
		err = explain(ctx, err)
	}
	cancel(nil)
	return code, errors.Join(err, <-controlled)
}

// explain prefers the reason for which the context was cancelled to what that led to.
func explain(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		return cause
	}
	return err
}

// prepare does what needs no component.
func prepare(s config.Settings) error {
	if err := mounts(s); err != nil {
		return err
	}
	if err := network(); err != nil {
		return err
	}
	identity := pki.Cluster{Server: config.Server, NodeName: config.NodeName, NodeIP: config.NodeIP, ServiceIP: config.ServiceIP}
	if err := pki.Write(s.PKI(), identity, time.Now()); err != nil {
		return err
	}
	files, err := config.Files(s)
	if err != nil {
		return err
	}
	for name, content := range files {
		file := s.Etc(name)
		if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
			return fmt.Errorf("create directory: %w", err)
		}
		if err := os.WriteFile(file, content, 0o600); err != nil {
			return fmt.Errorf("write configuration: %w", err)
		}
	}
	return nil
}

func components(s config.Settings, a *api) []supervisor.Component {
	var all []supervisor.Component
	for _, name := range config.Components() {
		if name == config.FakeKubelet && !s.FakeNodes {
			continue
		}
		all = append(all, supervisor.Component{
			Name: name,
			Path: config.Program(s, name), Args: config.Args(s, name),
			// containerd finds its shim on the path.
			Env:   []string{"PATH=" + s.Binaries + ":" + os.Getenv("PATH")},
			Log:   s.Logs(name + ".log"),
			Ready: a.probe(name),
		})
	}
	return all
}

// bringUp starts everything and returns when a pod could start.
func bringUp(ctx context.Context, spec Spec, components *supervisor.Supervisor, a *api, say Say) error {
	ctx, cancel := context.WithTimeoutCause(ctx, spec.ReadyTimeout,
		fmt.Errorf("the node was not Ready within %s", spec.ReadyTimeout))
	defer cancel()
	both, groupCtx := errgroup.WithContext(ctx)
	both.Go(func() error { // the control plane
		for _, name := range []string{config.Etcd, config.APIServer} {
			if err := components.Start(groupCtx, name); err != nil {
				return err
			}
		}
		say("API server ready")
		return nil
	})
	both.Go(func() error { // the container runtime
		if err := components.Start(groupCtx, config.Containerd); err != nil {
			return err
		}
		if err := importImages(groupCtx, spec); err != nil {
			return err
		}
		say("containerd ready, %d images imported", len(spec.Images))
		return nil
	})
	if err := both.Wait(); err != nil {
		return err
	}
	if err := applyManifests(ctx, spec); err != nil {
		return err
	}
	rest, groupCtx := errgroup.WithContext(ctx)
	last := []string{config.ControllerManager, config.Scheduler, config.Kubelet}
	if spec.Settings.FakeNodes {
		last = append(last, config.FakeKubelet)
	}
	for _, name := range last {
		rest.Go(func() error { return components.Start(groupCtx, name) })
	}
	if err := rest.Wait(); err != nil {
		return err
	}
	say("%s ready", strings.Join(last, ", "))
	if err := await(ctx, a.usable); err != nil {
		return fmt.Errorf("wait for the node: %w; the end of kubelet's log:\n%s", err, supervisor.Tail(spec.Settings.Logs("kubelet.log"), 15))
	}
	say("node %s Ready", config.NodeName)
	return nil
}

// await asks until there is no error, and returns the last one when the context ends.
func await(ctx context.Context, ask func(context.Context) error) error {
	for {
		attempt, cancel := context.WithTimeout(ctx, 2*time.Second)
		err := ask(attempt)
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w (%w)", context.Cause(ctx), err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// importImages gives containerd the images: kubelet could pull none.
func importImages(ctx context.Context, spec Spec) error {
	for _, image := range spec.Images {
		// --local unpacks in ctr's own process; the other way goes through the
		// transfer service, whose configuration would have to be written first.
		command := exec.CommandContext(ctx, spec.Settings.Binary("ctr"),
			"--address", config.ContainerdSocket, "--namespace", "k8s.io", "images", "import", "--local", image)
		if out, err := command.CombinedOutput(); err != nil {
			return fmt.Errorf("import image %s: %w\n%s", image, err, out)
		}
	}
	return nil
}
