#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Brings up Tranche with simulated cards on kind. Needs docker, kind 0.33 or newer, kubectl and git. Run it again after a change.
set -eu
cd "$(dirname "$0")/../../.."

node=localhost/tranche/tranche-node:dev
arbiter=localhost/tranche/tranche-arbiter:dev
client=localhost/tranche/client:dev
busybox=localhost/tranche/busybox:dev

kind get clusters | grep -qx tranche || kind create cluster --config demo/clusters/kind/cluster.yaml
for image in "$node" "$arbiter" "$client"; do
	target=${image##*/}
	docker build -f deployments/container/Dockerfile --target "${target%:*}" -t "$image" --build-arg VERSION="$(git describe --tags --always --dirty)" .
done
docker pull busybox:1.37
docker tag busybox:1.37 "$busybox"
kind load docker-image --name tranche "$node" "$arbiter" "$client" "$busybox"
kubectl --context kind-tranche apply -k demo/clusters/local
kubectl --context kind-tranche -n tranche-system rollout restart daemonset/tranche-node daemonset/tranche-arbiter
kubectl --context kind-tranche -n tranche-system rollout status daemonset/tranche-node --timeout=120s
kubectl --context kind-tranche -n tranche-system rollout status daemonset/tranche-arbiter --timeout=120s
kubectl --context kind-tranche get resourceslices
