#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs inside of a cluster with --fake-nodes: a node that does not exist takes pods.
set -eu
kubectl apply -f "$1"
kubectl wait --for=condition=Ready node/fake --timeout=60s
kubectl wait --for=condition=Ready pod/runs --timeout=60s
kubectl wait --for=condition=Complete job/completes --timeout=60s
kubectl delete pod runs --timeout=60s
tranche-cluster ctl kill kwok
kubectl apply -f "$1"
kubectl wait --for=condition=Ready pod/runs --timeout=60s
echo fake passed
