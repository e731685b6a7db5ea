// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"net"

	"github.com/vishvananda/netlink"

	"github.com/tranche-dra/tranche/tests/cluster/internal/config"
)

// network gives the node an address that nothing outside can reach, and the
// kubernetes service's address beside it: no kube-proxy is needed for that one.
func network() error {
	loopback, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find loopback: %w", err)
	}
	// A bridge without ports, not a dummy link: the pods' network needs bridges
	// anyway, and a kernel may lack dummy.
	node := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "node0"}}
	if err := netlink.LinkAdd(node); err != nil {
		return fmt.Errorf("add the node's link: %w", err)
	}
	for _, address := range []net.IPNet{
		{IP: config.NodeIP, Mask: net.CIDRMask(config.NodePrefix, 32)},
		{IP: config.ServiceIP, Mask: net.CIDRMask(32, 32)},
		{IP: config.DNSIP, Mask: net.CIDRMask(32, 32)},
	} {
		if err := netlink.AddrAdd(node, &netlink.Addr{IPNet: &address}); err != nil {
			return fmt.Errorf("add address %s: %w", &address, err)
		}
	}
	for _, link := range []netlink.Link{loopback, node} {
		if err := netlink.LinkSetUp(link); err != nil {
			return fmt.Errorf("set link %s up: %w", link.Attrs().Name, err)
		}
	}
	// Kubelet and the API server look for the interface of the default route.
	if err := netlink.RouteAdd(&netlink.Route{LinkIndex: node.Index, Gw: config.Gateway}); err != nil {
		return fmt.Errorf("add default route: %w", err)
	}
	return nil
}
