// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"
)

// address is where a scheduler serves its health and its metrics.
const address = "https://127.0.0.1:10259"

// contender is a scheduler that takes part.
type contender struct {
	name, program string
	// profile is the name that pods ask for it by.
	profile string
	// written is its configuration; empty is Kubernetes' default.
	written []byte
}

// configuration is what was written, with what all contenders have alike: the
// way to the API server, at the rate that one would give a scheduler of a
// cluster of this size.
func (s contender) configuration(kubeconfig string) ([]byte, error) {
	document := map[string]any{}
	if err := yaml.UnmarshalStrict(s.written, &document); err != nil {
		return nil, fmt.Errorf("read configuration of %s: %w", s.name, err)
	}
	if len(document) == 0 {
		document["apiVersion"], document["kind"] = "kubescheduler.config.k8s.io/v1", "KubeSchedulerConfiguration"
	}
	document["clientConnection"] = map[string]any{"kubeconfig": kubeconfig, "qps": 1000, "burst": 2000}
	document["leaderElection"] = map[string]any{"leaderElect": false}
	return yaml.Marshal(document)
}

// process is a running scheduler.
type process struct {
	command *exec.Cmd
	http    *http.Client
	ended   chan struct{}
	log     string
}

// start runs the scheduler and returns once it is ready, having seen all that
// is in the cluster.
func (c *cluster) start(ctx context.Context, s contender) (*process, error) {
	keys, logs := os.Getenv("TRANCHE_CLUSTER_PKI"), os.Getenv("TRANCHE_CLUSTER_LOGS")
	kubeconfig := filepath.Join(keys, "kube-scheduler.kubeconfig")
	config, err := s.configuration(kubeconfig)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(os.Getenv("TRANCHE_CLUSTER_WORK"), s.name+".yaml")
	if err := os.WriteFile(file, config, 0o600); err != nil {
		return nil, err
	}
	transport, err := rest.HTTPClientFor(c.config)
	if err != nil {
		return nil, err
	}
	p := &process{http: transport, ended: make(chan struct{}), log: filepath.Join(logs, "bench-"+s.name+".log")}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close() //nolint:errcheck // the child has its own copy
	// Without a context: it gets SIGTERM from stop.
	p.command = exec.Command(s.program, "--config="+file, "--bind-address=127.0.0.1",
		"--authentication-kubeconfig="+kubeconfig, "--authorization-kubeconfig="+kubeconfig,
		"--tls-cert-file="+filepath.Join(keys, "local.crt"), "--tls-private-key-file="+filepath.Join(keys, "local.key"))
	p.command.Stdout, p.command.Stderr = log, log
	p.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.command.Start(); err != nil {
		return nil, fmt.Errorf("start: %w", err)
	}
	go func() {
		_ = p.command.Wait() // how it ended is in its log
		close(p.ended)
	}()
	err = until(ctx, time.Minute, "the scheduler is ready", func(ctx context.Context) error {
		if !p.runs() {
			return errors.New("it has ended")
		}
		_, err := p.get(ctx, "/readyz")
		return err
	})
	if err != nil {
		p.stop()
		return nil, fmt.Errorf("%w; see %s", err, p.log)
	}
	return p, nil
}

func (p *process) runs() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

func (p *process) stop() {
	_ = p.command.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-p.ended:
	case <-time.After(10 * time.Second):
		_ = p.command.Process.Kill()
		<-p.ended
	}
}

func (p *process) get(ctx context.Context, path string) (body []byte, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := p.http.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, response.Body.Close()) }()
	if body, err = io.ReadAll(response.Body); err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("ask for %s: %s", path, response.Status)
	}
	return body, nil
}

// metrics of the scheduler since it was started.
func (p *process) metrics(ctx context.Context) (map[string]*dto.MetricFamily, error) {
	body, err := p.get(ctx, "/metrics")
	if err != nil {
		return nil, fmt.Errorf("read metrics: %w", err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(bytes.NewReader(body))
}

// cpu is the time that the scheduler has computed for.
func (p *process) cpu() (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.command.Process.Pid))
	if err != nil {
		return 0, err
	}
	// The program's name, in parentheses, may have spaces. See proc_pid_stat(5).
	_, after, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(after)
	if len(fields) < 13 {
		return 0, fmt.Errorf("read CPU time: %q", stat)
	}
	user, err := strconv.ParseInt(fields[11], 10, 64)
	if err != nil {
		return 0, err
	}
	system, err := strconv.ParseInt(fields[12], 10, 64)
	const tick = 10 * time.Millisecond // USER_HZ is 100 on every architecture of ours
	return time.Duration(user+system) * tick, err
}
