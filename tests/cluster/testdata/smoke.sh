#!/bin/sh
# Runs inside a cluster; says "smoke passed" where every part of a node does its work.
set -eu

expect() { # expect WORD FILE
  grep -q "$1" "$2" || { echo "no '$1' in:"; cat "$2"; exit 1; }
}
out=$TRANCHE_CLUSTER_WORK/out
ctl() { "$TRANCHE_CLUSTER_CTL" ctl "$@"; }

kubectl apply -f "$1"
kubectl wait --for=condition=Ready pod/bridged pod/host-network --timeout=60s
kubectl wait --for=jsonpath='{.status.containerStatuses[0].state.terminated.reason}'=OOMKilled pod/greedy --timeout=60s

# The API server is reached as a service, with the pod's own account, from both networks.
for pod in bridged host-network; do
  kubectl wait --for=jsonpath='{.status.phase}'=Running "pod/$pod" --timeout=10s
  for try in 1 2 3 4 5 6 7 8 9 10; do
    kubectl logs "$pod" >"$out"
    grep -q gitVersion "$out" && break
    sleep 0.5
  done
  expect '"gitVersion": "v1.37' "$out"
done
kubectl exec bridged -- /bin/sh -c 'echo from $HOSTNAME' >"$out"
expect 'from bridged' "$out"

# The pods outlive every component.
started=$(kubectl get pod bridged -o jsonpath='{.status.containerStatuses[0].state.running.startedAt}')
ctl restart kubelet
ctl kill kubelet
ctl restart containerd
ctl kill containerd
ctl stop apiserver
if kubectl get --raw /readyz --request-timeout=2s >"$out" 2>&1; then echo "the API server answers though stopped"; exit 1; fi
ctl status >"$out"
expect 'kube-apiserver *stopped' "$out"
ctl start apiserver
ctl kill etcd
ctl kill scheduler
ctl kill controller-manager
kubectl wait --for=condition=Ready node/"$TRANCHE_CLUSTER_NODE" pod/bridged --timeout=60s
kubectl exec bridged -- /bin/sh -c 'echo still there' >"$out"
expect 'still there' "$out"
[ "$started" = "$(kubectl get pod bridged -o jsonpath='{.status.containerStatuses[0].state.running.startedAt}')" ]

# It is a node like any other for those who look for its parts.
[ -S /var/lib/kubelet/pod-resources/kubelet.sock ]
[ -d /var/lib/kubelet/plugins_registry ]
[ -d "$TRANCHE_CLUSTER_CDI_DIR" ]
kubectl delete pod bridged host-network greedy --timeout=60s
echo smoke passed
