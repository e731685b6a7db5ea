// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"errors"
	"net"

	"google.golang.org/grpc"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/klog/v2"
	drav1 "k8s.io/kubelet/pkg/apis/dra/v1"
	drav1beta1 "k8s.io/kubelet/pkg/apis/dra/v1beta1"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// intercept sees every call of kubelet before the helper does.
func (p plugin) intercept(ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	p.calls.enter()
	defer p.calls.leave()
	switch info.FullMethod {
	case registerapi.Registration_NotifyRegistrationStatus_FullMethodName:
		answer, err := handler(ctx, request)
		if status, ok := request.(*registerapi.RegistrationStatus); ok {
			p.registrationTold(ctx, status)
		}
		return answer, err
	case drav1.DRAPlugin_NodePrepareResources_FullMethodName, drav1beta1.DRAPlugin_NodePrepareResources_FullMethodName:
		return p.retryLookup(ctx, request, handler)
	default:
		return handler(ctx, request)
	}
}

// registrationTold takes kubelet's answer to our registration. A kubelet that
// starts deletes the node's slices first and registers its plugins then, so
// every registration asks for the slices again.
func (p plugin) registrationTold(ctx context.Context, status *registerapi.RegistrationStatus) {
	logger := klog.FromContext(ctx)
	if !status.GetPluginRegistered() {
		logger.Error(errors.New(status.GetError()), "Kubelet refused the registration")
		p.registered.Store(false)
		return
	}
	logger.Info("Registered with kubelet")
	p.registered.Store(true)
	p.publisher.request(publishAgain)
}

// retryLookup repeats a call that failed because a claim could not be read from
// the API server. The helper reads claims before it asks us, and fails the whole
// call of the pod when one read fails; errors of preparing do not come this way.
func (p plugin) retryLookup(ctx context.Context, request any, handler grpc.UnaryHandler) (answer any, err error) {
	err = p.insist(ctx, func(context.Context) error {
		answer, err = handler(ctx, request)
		if isAPIServerAway(err) {
			return transient{err}
		}
		return err
	}, func(error) {}) // an API server that is away takes no events
	return answer, err
}

type transient struct{ error }

func (t transient) Unwrap() error   { return t.error }
func (t transient) Transient() bool { return true }

// isAPIServerAway tells a server that cannot answer now from one that did.
func isAPIServerAway(err error) bool {
	if err == nil {
		return false
	}
	var timeout net.Error
	return apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || apierrors.IsTooManyRequests(err) ||
		apierrors.IsServiceUnavailable(err) || apierrors.IsInternalError(err) ||
		utilnet.IsConnectionRefused(err) || utilnet.IsConnectionReset(err) || utilnet.IsHTTP2ConnectionLost(err) ||
		utilnet.IsProbableEOF(err) || errors.As(err, &timeout) && timeout.Timeout()
}
