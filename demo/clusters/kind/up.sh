#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Brings up Tranche with simulated cards on kind. Needs docker, kind 0.33 or newer, kubectl and git. Run it again after a change.
set -eu
cd "$(dirname "$0")/../../.."

node=localhost/tranche/tranche-node:dev
busybox=localhost/tranche/busybox:dev

kind get clusters | grep -qx tranche || kind create cluster --config demo/clusters/kind/cluster.yaml
docker build -f deployments/container/Dockerfile -t "$node" --build-arg VERSION="$(git describe --tags --always --dirty)" .
docker pull busybox:1.37
docker tag busybox:1.37 "$busybox"
kind load docker-image --name tranche "$node" "$busybox"
kubectl --context kind-tranche apply -k demo/clusters/local
kubectl --context kind-tranche -n tranche-system rollout restart daemonset/tranche-node
kubectl --context kind-tranche -n tranche-system rollout status daemonset/tranche-node --timeout=120s
kubectl --context kind-tranche get resourceslices
