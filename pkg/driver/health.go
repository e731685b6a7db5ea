// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"strings"
	"time"

	"k8s.io/dynamic-resource-allocation/kubeletplugin"

	"github.com/tranche-dra/tranche/pkg/card"
)

// WatchHealthStatus reports the health of all cards: at once, upon every change,
// and again before kubelet takes a report for outdated.
func (p plugin) WatchHealthStatus(ctx context.Context, reports chan<- kubeletplugin.DeviceHealthReport) error {
	again := time.NewTicker(p.timing.HealthResend)
	defer again.Stop()
	for {
		current, changed := p.inventory.current()
		select {
		case <-ctx.Done():
			return nil
		case reports <- healthReport(p.config.NodeName, current):
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-again.C:
		}
	}
}

// healthReport is what is known of every card. When the cards could not be
// listed lately nothing is known, and saying "healthy" would be a guess.
func healthReport(pool string, s snapshot) kubeletplugin.DeviceHealthReport {
	report := kubeletplugin.DeviceHealthReport{Devices: make([]kubeletplugin.DeviceHealth, 0, len(s.cards))}
	for _, c := range s.cards {
		health, message := kubeletplugin.HealthStatusHealthy, ""
		switch {
		case s.err != nil:
			health, message = kubeletplugin.HealthStatusUnknown, s.err.Error()
		case !c.Healthy():
			health, message = kubeletplugin.HealthStatusUnhealthy, faultsText(c.Faults)
		}
		report.Devices = append(report.Devices, kubeletplugin.DeviceHealth{
			PoolName: pool, DeviceName: c.DeviceName(), Health: health, LastUpdated: s.listedAt, Message: shorten(message, maxHealthMessage),
		})
	}
	return report
}

func faultsText(faults []card.Fault) string {
	texts := make([]string, 0, len(faults))
	for _, f := range faults {
		texts = append(texts, f.Kind+": "+f.Message)
	}
	return strings.Join(texts, "; ")
}
