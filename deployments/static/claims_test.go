// SPDX-License-Identifier: Apache-2.0

package static_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	k8sadmission "k8s.io/apiserver/pkg/admission"

	"github.com/tranche-dra/tranche/deployments/static"
	"github.com/tranche-dra/tranche/deployments/static/admission"
	"github.com/tranche-dra/tranche/pkg/api/v1alpha1"
)

// policy compiles the named policy as it is applied.
func policy(t *testing.T, name string) *admission.Policy {
	t.Helper()
	objects, err := static.Objects()
	require.NoError(t, err)
	for _, o := range objects {
		if p, ok := o.(*admissionregistrationv1.ValidatingAdmissionPolicy); ok && p.Name == name {
			compiled, err := admission.Compile(p)
			require.NoError(t, err)
			return compiled
		}
	}
	require.Fail(t, "no policy", name)
	return nil
}

func decodeOne(t *testing.T, document string) runtime.Object {
	t.Helper()
	objects, err := static.Decode([]byte(document))
	require.NoError(t, err)
	require.Len(t, objects, 1)
	return objects[0]
}

// claim is a ResourceClaim with the given devices.
func claim(t *testing.T, devices string) runtime.Object {
	t.Helper()
	return decodeOne(t, "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: c, namespace: team}\nspec: {devices: {"+devices+"}}\n")
}

// template is a ResourceClaimTemplate with the same.
func template(t *testing.T, devices string) runtime.Object {
	t.Helper()
	return decodeOne(t, "apiVersion: resource.k8s.io/v1\nkind: ResourceClaimTemplate\nmetadata: {name: c, namespace: team}\nspec: {spec: {devices: {"+devices+"}}}\n")
}

// one is a claim's devices with one request named gpu.
func one(class, capacity string) string {
	return fmt.Sprintf("requests: [{name: gpu, exactly: {deviceClassName: %s, capacity: {requests: {%s}}}}]", class, capacity)
}

// configured adds an opaque config of ours to devices.
func configured(devices, fields string) string {
	return devices + ", config: [{opaque: {driver: gpu.tranche.dev, parameters: {apiVersion: tranche.dev/v1alpha1, kind: ShareConfig, " + fields + "}}}]"
}

// driven is devices with a config of ours in the name of another driver.
func driven(devices, driver string) string {
	return strings.Replace(devices, "driver: gpu.tranche.dev", "driver: "+driver, 1)
}

func create(object runtime.Object, resource string) admission.Request {
	return admission.Request{
		Operation: k8sadmission.Create,
		Resource:  resourceapi.SchemeGroupVersion.WithResource(resource),
		Object:    object,
	}
}

const (
	shareAt = "request gpu (class share.tranche.dev) "
	cardAt  = "request gpu (class card.tranche.dev) "
	tooMany = "the counts of all requests add up to more than 32: Kubernetes gives at most 32 devices to one claim, spread them over several claims"
	whole   = "for whole cards ask for class card.tranche.dev with count: "
)

// claimRows pairs devices with the message that refuses them, empty if admitted.
func claimRows() map[string]struct{ devices, denial string } {
	const share, offline = "share.tranche.dev", "offline.tranche.dev"
	fixed := configured(one(share, "cores: 10, memory: 4Gi"), "policy: fixed-share")
	return map[string]struct{ devices, denial string }{
		"a share":                                    {one(share, "cores: 30, memory: 4Gi"), ""},
		"a share with all of the compute":            {one(share, "cores: 100, memory: 4Gi"), ""},
		"a share without compute":                    {one(share, "cores: 0, memory: 256Mi"), ""},
		"a thousand thousandths are one":             {one(share, "cores: 1000m, memory: 4Gi"), ""},
		"the odd MiB":                                {one(share, "cores: 1, memory: 4097Mi"), ""},
		"memory in bytes":                            {one(share, `cores: 1, memory: "1073741824"`), ""},
		"memory with an exponent":                    {one(share, "cores: 1, memory: 1048576e3"), ""},
		"an online share":                            {one("online.tranche.dev", "cores: 30, memory: 4Gi"), ""},
		"an online share that says so twice":         {one("online.tranche.dev", "cores: 30, memory: 4Gi, offlineCores: 0"), ""},
		"an offline share":                           {one(offline, "cores: 0, offlineCores: 40, memory: 4Gi"), ""},
		"an offline share of memory only":            {one(offline, "cores: 0, offlineCores: 0, memory: 4Gi"), ""},
		"an offline share by config":                 {configured(one(share, "cores: 0, offlineCores: 40, memory: 4Gi"), "class: offline"), ""},
		"equal parts of two cards":                   {"requests: [{name: gpu, exactly: {deviceClassName: share.tranche.dev, count: 2, capacity: {requests: {cores: 25, memory: 4Gi}}}}]", ""},
		"a whole card":                               {"requests: [{name: gpu, exactly: {deviceClassName: card.tranche.dev}}]", ""},
		"three whole cards":                          {"requests: [{name: gpu, exactly: {deviceClassName: card.tranche.dev, count: 3}}]", ""},
		"all cards of a node":                        {"requests: [{name: gpu, exactly: {deviceClassName: card.tranche.dev, allocationMode: All}}]", ""},
		"what the scheduler makes of a plain limit":  {"requests: [{name: container-0-request-0, exactly: {deviceClassName: card.tranche.dev, allocationMode: ExactCount, count: 1}}]", ""},
		"a claim without requests":                   {"", ""},
		"another driver's claim":                     {one("gpu.example.com", `cores: 130, memory: "-5", slots: 9`), ""},
		"another driver's claim without capacity":    {"requests: [{name: gpu, exactly: {deviceClassName: gpu.example.com}}]", ""},
		"another driver's config":                    {one(share, "cores: 30, memory: 4Gi") + ", config: [{opaque: {driver: gpu.example.com, parameters: {kind: Any, policy: [1]}}}]", ""},
		"another driver's config of our kind's name": {one(share, "cores: 30, memory: 4Gi") + ", config: [{opaque: {driver: gpu.example.com, parameters: {apiVersion: example.com/v1alpha1, kind: ShareConfig}}}]", ""},
		"admin access to another driver":             {"requests: [{name: gpu, exactly: {deviceClassName: gpu.example.com, adminAccess: true}}]", ""},
		"a class that only ends like ours":           {one("share.tranche.development", "cores: 130"), ""},
		"an admin's own class":                       {one("a100.tranche.dev", "cores: 30, memory: 4Gi"), ""},
		"an admin's own class of whole cards":        {"requests: [{name: gpu, exactly: {deviceClassName: a100.tranche.dev}}]", ""},
		"an admin's own offline class":               {one("night.tranche.dev", "cores: 0, offlineCores: 40, memory: 4Gi"), ""},
		"alternatives":                               {"requests: [{name: gpu, firstAvailable: [{name: big, deviceClassName: share.tranche.dev, capacity: {requests: {cores: 50, memory: 8Gi}}}, {name: whole, deviceClassName: card.tranche.dev}]}]", ""},
		"two requests on different cards":            {"requests: [{name: a, exactly: {deviceClassName: share.tranche.dev, capacity: {requests: {cores: 20, memory: 2Gi}}}}, {name: b, exactly: {deviceClassName: fixed.tranche.dev, capacity: {requests: {cores: 20, memory: 2Gi}}}}], constraints: [{distinctAttribute: gpu.tranche.dev/uuid}]", ""},
		"every field of a config":                    {configured(one(share, "cores: 30, memory: 4Gi"), "policy: guaranteed-burst-share, class: online, burst: {ceiling: 60}"), ""},
		"an empty config":                            {one(share, "cores: 30, memory: 4Gi") + ", config: [{opaque: {driver: gpu.tranche.dev, parameters: {apiVersion: tranche.dev/v1alpha1, kind: ShareConfig}}}]", ""},
		"a config that sets nothing":                 {configured(one(share, "cores: 30, memory: 4Gi"), "policy: null, class: null, burst: null"), ""},
		"a ceiling that waits for the node's policy": {configured(one(share, "cores: 30, memory: 4Gi"), "burst: {ceiling: 10}"), ""},
		"a ceiling below a weight":                   {configured(one("weighted.tranche.dev", "cores: 30, memory: 4Gi"), "burst: {ceiling: 10}"), ""},
		"a ceiling of all of a whole card":           {configured(one("card.tranche.dev", ""), "burst: {ceiling: 100}"), ""},
		"a whole card under a weight, with ceiling":  {configured(one("card.tranche.dev", ""), "policy: native-burst-share, burst: {ceiling: 50}"), ""},
		"a whole card with every policy":             {configured(one("card.tranche.dev", ""), "policy: fixed-share, class: online"), ""},
		"an admin's cards, under the class's policy": {configured(one("a100.tranche.dev", ""), "burst: {ceiling: 50}"), ""},
		"32 cards":                              {"requests: [{name: gpu, exactly: {deviceClassName: card.tranche.dev, count: 32}}]", ""},
		"32 cards in two requests":              {"requests: [{name: a, exactly: {deviceClassName: card.tranche.dev, count: 31}}, {name: b, exactly: {deviceClassName: card.tranche.dev}}]", ""},
		"32 cards, by the smallest alternative": {"requests: [{name: a, exactly: {deviceClassName: card.tranche.dev, count: 30}}, {name: b, firstAvailable: [{name: many, deviceClassName: card.tranche.dev, count: 4}, {name: few, deviceClassName: card.tranche.dev, count: 2}]}]", ""},
		"33 devices of another driver":          {"requests: [{name: gpu, exactly: {deviceClassName: gpu.example.com, count: 33}}]", ""},
		"all but one MiB of what can be":        {one(share, "cores: 30, memory: 1073741823Mi"), ""},
		"more than isInteger can tell":          {one(share, "cores: 30, memory: 1023Ti"), ""},
		"a config may free a fixed share":       {configured(one("fixed.tranche.dev", "cores: 0, memory: 4Gi"), "policy: best-effort"), ""},

		"no capacity":                            {"requests: [{name: gpu, exactly: {deviceClassName: share.tranche.dev}}]", shareAt + "names no capacity: name both cores and memory, what is left out would be taken whole; " + whole + "N"},
		"no capacity, by an empty map":           {one("burst.tranche.dev", ""), "request gpu (class burst.tranche.dev) names no capacity"},
		"no capacity, offline":                   {"requests: [{name: gpu, exactly: {deviceClassName: offline.tranche.dev}}]", "request gpu (class offline.tranche.dev) names no capacity: name cores: 0, offlineCores and memory"},
		"memory only":                            {one(share, "memory: 4Gi"), shareAt + "names memory: 4Gi but not cores: name both, what is left out would be taken whole"},
		"cores only":                             {one(share, "cores: 30"), shareAt + "names cores: 30 but not memory: name both"},
		"neither":                                {one(share, "offlineCores: 30"), shareAt + "names offlineCores: 30 but not cores and memory"},
		"offline, without the ledger":            {one(offline, "cores: 0, memory: 4Gi"), "request gpu (class offline.tranche.dev) names cores: 0, memory: 4Gi but not offlineCores: an offline share names cores: 0, offlineCores and memory"},
		"an admin's class, half named":           {one("a100.tranche.dev", "memory: 4Gi"), "request gpu (class a100.tranche.dev) names memory: 4Gi but not cores"},
		"slots":                                  {one(share, "cores: 30, memory: 4Gi, slots: 2"), shareAt + "asks for slots: 2: slots cannot be asked for, every share takes one"},
		"a capacity that nobody has":             {one(share, "cores: 30, memory: 4Gi, core: 5"), shareAt + "asks for core: 5: a share can name cores, memory and offlineCores only"},
		"a capacity with a domain":               {one(share, "gpu.tranche.dev/cores: 30, memory: 4Gi"), shareAt + "asks for gpu.tranche.dev/cores: 30: a share can name"},
		"130 cores":                              {one(share, "cores: 130, memory: 4Gi"), shareAt + "asks for cores: 130: a percent of one card is 0 to 100; " + whole + "1 or 2 and no capacity"},
		"300 cores":                              {one(share, "cores: 300, memory: 4Gi"), shareAt + "asks for cores: 300: a percent of one card is 0 to 100; " + whole + "3 and no capacity"},
		"101 cores":                              {one("weighted.tranche.dev", "cores: 101, memory: 4Gi"), "asks for cores: 101: a percent of one card is 0 to 100; " + whole + "1 or 2"},
		"more cores than can be counted":         {one(share, "cores: 100Ei, memory: 4Gi"), shareAt + "asks for cores: 9223372036854775807: a percent of one card is 0 to 100; " + whole + "N"},
		"100.5 cores":                            {one(share, `cores: "100.5", memory: 4Gi`), "a percent of one card is 0 to 100; " + whole + "N and no capacity"},
		"half a percent":                         {one(share, "cores: 500m, memory: 4Gi"), shareAt + "asks for cores: 500m: a percent of one card is 0 to 100, without fraction"},
		"a part of one as a percent":             {one(share, "cores: 0.3, memory: 4Gi"), "asks for cores: 300m: a percent of one card is 0 to 100, without fraction, did you mean 30?"},
		"a hundredth as a percent":               {one(offline, "cores: 0, offlineCores: 0.01, memory: 4Gi"), "asks for offlineCores: 10m: a percent of one card is 0 to 100, without fraction, did you mean 1?"},
		"part of a percent, twice":               {one(share, "cores: 0.305, offlineCores: 1.5, memory: 4Gi"), "cores: 305m: a percent of one card is 0 to 100, without fraction; " + shareAt + "asks for offlineCores: 1500m: a percent of one card is 0 to 100, without fraction"},
		"offline, without cores":                 {one(offline, "offlineCores: 30, memory: 4Gi"), "names memory: 4Gi, offlineCores: 30 but not cores: an offline share names cores: 0, offlineCores and memory"},
		"offline by its ledger":                  {one(share, "offlineCores: 30, memory: 4Gi"), "but not cores: an offline share names cores: 0, offlineCores and memory"},
		"online, with no offline cores":          {one("online.tranche.dev", "offlineCores: 0, memory: 4Gi"), "but not cores: name both"},
		"a negative percent":                     {one(share, "cores: -5, memory: 4Gi"), shareAt + "asks for cores: -5: a percent of one card is 0 to 100, never negative"},
		"130 offline cores":                      {one(offline, "cores: 0, offlineCores: 130, memory: 4Gi"), "asks for offlineCores: 130: a percent of one card is 0 to 100; spread the work over cards with count: N"},
		"a negative offline percent":             {one(offline, "cores: 0, offlineCores: -1, memory: 4Gi"), "asks for offlineCores: -1: a percent of one card is 0 to 100, never negative"},
		"too little memory":                      {one(share, "cores: 30, memory: 255Mi"), shareAt + "asks for memory: 255Mi: a share takes at least 256Mi"},
		"no memory":                              {one(share, "cores: 30, memory: 0"), shareAt + "asks for memory: 0: a share takes at least 256Mi"},
		"a forgotten unit":                       {one(share, "cores: 30, memory: 4096"), shareAt + "asks for memory: 4096: a share takes at least 256Mi, did you leave out the unit?"},
		"negative memory":                        {one(share, "cores: 30, memory: -4Gi"), shareAt + "asks for memory: -4Gi: a share takes at least 256Mi"},
		"memory off the step":                    {one(share, "cores: 30, memory: 4G"), shareAt + "asks for memory: 4G: memory is given in steps of 1Mi, the nearest are 3814Mi and 3815Mi"},
		"memory in parts of bytes":               {one(share, `cores: 30, memory: "1073741824500m"`), shareAt + "asks for memory: 1073741824500m: memory is given in steps of 1Mi"},
		"more memory than any card":              {one(share, "cores: 30, memory: 1Pi"), shareAt + "asks for memory: 1Pi: no card has as much"},
		"more memory than can be counted":        {one(share, "cores: 30, memory: 1000Ei"), "no card has as much"},
		"a whole card with capacity":             {one("card.tranche.dev", "cores: 50, memory: 4Gi"), cardAt + "asks for cores: 50, memory: 4Gi: whole cards are taken as they are, leave capacity out and say count: N; for a part of a card ask for class share.tranche.dev"},
		"all that can be, and a byte less":       {one(share, `cores: 30, memory: "1125899906842623"`), shareAt + "asks for memory: 1125899906842623: memory is given in steps of 1Mi, the nearest are 1073741823Mi and 1073741824Mi"},
		"hundreds of Ti off the step":            {one(share, "cores: 30, memory: 1000T"), shareAt + "asks for memory: 1P: memory is given in steps of 1Mi, the nearest are 953674316Mi and 953674317Mi"},
		"33 cards":                               {"requests: [{name: gpu, exactly: {deviceClassName: card.tranche.dev, count: 33}}]", tooMany},
		"33 shares in two requests":              {"requests: [{name: a, exactly: {deviceClassName: share.tranche.dev, count: 32, capacity: {requests: {cores: 1, memory: 1Gi}}}}, {name: b, exactly: {deviceClassName: card.tranche.dev, allocationMode: All}}]", tooMany},
		"33 cards, by the smallest alternative":  {"requests: [{name: a, exactly: {deviceClassName: card.tranche.dev, count: 30}}, {name: b, firstAvailable: [{name: many, deviceClassName: card.tranche.dev, count: 4}, {name: few, deviceClassName: card.tranche.dev, count: 3}]}]", tooMany},
		"33 devices, most of another driver":     {"requests: [{name: nic, exactly: {deviceClassName: nic.example.com, count: 32}}, {name: gpu, exactly: {deviceClassName: card.tranche.dev}}]", tooMany},
		"counts past all numbers":                {"requests: [{name: a, exactly: {deviceClassName: card.tranche.dev, count: 9223372036854775807}}, {name: b, exactly: {deviceClassName: card.tranche.dev, count: 9223372036854775807}}]", tooMany},
		"an offline card":                        {configured(one("card.tranche.dev", ""), "class: offline"), cardAt + "asks for a whole card in priority class offline: a whole card has nobody to yield to, leave class out; for an offline share ask for class offline.tranche.dev"},
		"an offline card of an admin's class":    {configured(one("a100.tranche.dev", ""), "class: offline"), "request gpu (class a100.tranche.dev) asks for a whole card in priority class offline"},
		"an offline card by its parent's config": {configured("requests: [{name: gpu, firstAvailable: [{name: whole, deviceClassName: card.tranche.dev}]}]", "class: offline"), "request gpu/whole (class card.tranche.dev) asks for a whole card in priority class offline"},
		"half a whole card":                      {configured(one("card.tranche.dev", ""), "burst: {ceiling: 50}"), cardAt + "has burst.ceiling: 50 and asks for a whole card: a ceiling is not below what is guaranteed, raise it or leave it out"},
		"half of an admin's whole card":          {configured(one("a100.tranche.dev", ""), "policy: guaranteed-burst-share, burst: {ceiling: 50}"), "has burst.ceiling: 50 and asks for a whole card"},
		"a ceiling for a card without one":       {configured(one("card.tranche.dev", ""), "policy: best-effort, burst: {ceiling: 100}"), cardAt + "has burst.ceiling: 100 under policy best-effort: only"},
		"admin access to a card":                 {"requests: [{name: gpu, exactly: {deviceClassName: card.tranche.dev, adminAccess: true}}]", cardAt + "has adminAccess: true"},
		"admin access to a share":                {"requests: [{name: gpu, exactly: {deviceClassName: share.tranche.dev, adminAccess: true, capacity: {requests: {cores: 1, memory: 1Gi}}}}]", shareAt + "has adminAccess: true"},

		"offline class with cores":              {one(offline, "cores: 30, offlineCores: 30, memory: 4Gi"), "asks for cores: 30, memory: 4Gi, offlineCores: 30: an offline share asks for cores: 0 and takes its compute as offlineCores: N"},
		"offline cores beside cores":            {one(share, "cores: 30, offlineCores: 30, memory: 4Gi"), shareAt + "asks for cores: 30, memory: 4Gi, offlineCores: 30: an offline share asks for cores: 0"},
		"offline by config, with cores":         {configured(one(share, "cores: 30, memory: 4Gi"), "class: offline"), shareAt + "asks for cores: 30, memory: 4Gi: an offline share asks for cores: 0"},
		"online class with offline cores":       {one("online.tranche.dev", "cores: 0, offlineCores: 30, memory: 4Gi"), "with priority class online: offlineCores are for offline shares, ask for class offline.tranche.dev"},
		"no class with offline cores":           {one(share, "cores: 0, offlineCores: 30, memory: 4Gi"), "with priority class none: offlineCores are for offline shares"},
		"offline class turned online":           {configured(one(offline, "cores: 0, offlineCores: 30, memory: 4Gi"), "class: online"), "with priority class online"},
		"an admin's class turned online":        {configured(one("night.tranche.dev", "cores: 0, offlineCores: 30, memory: 4Gi"), "class: online"), "with priority class online"},
		"a fixed share of nothing":              {one("fixed.tranche.dev", "cores: 0, memory: 4Gi"), "asks for cores: 0, memory: 4Gi under policy fixed-share: it could never run anything, ask for at least 1 or for class besteffort.tranche.dev"},
		"a fixed offline share of nothing":      {configured(one(offline, "cores: 0, offlineCores: 0, memory: 4Gi"), "policy: fixed-share"), "asks for cores: 0, memory: 4Gi, offlineCores: 0 under policy fixed-share: it could never run anything, ask for offlineCores of at least 1"},
		"a fixed share of nothing, by config":   {configured(one(share, "cores: 0, memory: 4Gi"), "policy: fixed-share"), "under policy fixed-share"},
		"a ceiling for a fixed share":           {configured(one("fixed.tranche.dev", "cores: 30, memory: 4Gi"), "burst: {ceiling: 50}"), "has burst.ceiling: 50 under policy fixed-share: only guaranteed-burst-share and native-burst-share take a ceiling"},
		"a ceiling below the offline guarantee": {configured(one(offline, "cores: 0, offlineCores: 40, memory: 4Gi"), "policy: guaranteed-burst-share, burst: {ceiling: 39}"), "has burst.ceiling: 39 and asks for cores: 0, memory: 4Gi, offlineCores: 40: a ceiling is not below what is guaranteed"},
		"a ceiling below the guarantee":         {configured(one("burst.tranche.dev", "cores: 30, memory: 4Gi"), "burst: {ceiling: 29}"), "has burst.ceiling: 29 and asks for cores: 30, memory: 4Gi: a ceiling is not below what is guaranteed"},

		"a config of another kind":       {one(share, "cores: 30, memory: 4Gi") + ", config: [{opaque: {driver: gpu.tranche.dev, parameters: {apiVersion: tranche.dev/v1, kind: ShareConfig}}}]", "config 0 must be apiVersion: tranche.dev/v1alpha1, kind: ShareConfig"},
		"a config of nothing":            {one(share, "cores: 30, memory: 4Gi") + ", config: [{opaque: {driver: gpu.example.com, parameters: {}}}, {opaque: {driver: gpu.tranche.dev, parameters: {}}}]", "config 1 must be apiVersion"},
		"a misspelt field":               {configured(one(share, "cores: 30, memory: 4Gi"), "polcy: fixed-share"), "config 0 has an unknown field polcy: the fields are policy, class and burst"},
		"a field in another case":        {configured(one(share, "cores: 30, memory: 4Gi"), "Policy: fixed-share"), "config 0 has an unknown field Policy"},
		"an unknown policy":              {configured(one(share, "cores: 30, memory: 4Gi"), "policy: fixed"), "config 0 has policy: fixed: it is best-effort, fixed-share, guaranteed-burst-share or native-burst-share"},
		"an empty policy":                {configured(one(share, "cores: 30, memory: 4Gi"), `policy: ""`), "config 0 has policy: : it is best-effort"},
		"a policy that is no text":       {configured(one(share, "cores: 30, memory: 4Gi"), "policy: {a: b}"), "config 0 has policy: not a text"},
		"an unknown class":               {configured(one(share, "cores: 30, memory: 4Gi"), "class: high"), "config 0 has class: high: it is none, online or offline"},
		"a class that is no text":        {configured(one(share, "cores: 30, memory: 4Gi"), "class: 5"), "config 0 has class: not a text"},
		"a burst that is no object":      {configured(one(share, "cores: 30, memory: 4Gi"), "burst: 50"), "config 0 has a burst that is no object"},
		"a misspelt field of burst":      {configured(one(share, "cores: 30, memory: 4Gi"), "burst: {cieling: 5}"), "config 0 has an unknown field burst.cieling: the field is burst.ceiling"},
		"a ceiling of zero":              {configured(one(share, "cores: 30, memory: 4Gi"), "burst: {ceiling: 0}"), "config 0 has burst.ceiling: 0: it is a whole percent of the card, 1 to 100"},
		"a ceiling past the card":        {configured(one(share, "cores: 30, memory: 4Gi"), "burst: {ceiling: 101}"), "config 0 has burst.ceiling: 101"},
		"a ceiling in quotes":            {configured(one(share, "cores: 30, memory: 4Gi"), `burst: {ceiling: "50"}`), "config 0 has burst.ceiling: 50: it is a whole percent"},
		"a fraction as a ceiling":        {configured(one(share, "cores: 30, memory: 4Gi"), "burst: {ceiling: 50.5}"), "config 0 has burst.ceiling: 50.5"},
		"a list as a ceiling":            {configured(one(share, "cores: 30, memory: 4Gi"), "burst: {ceiling: [5]}"), "config 0 has burst.ceiling: not a number"},
		"a config for the domain alone":  {driven(fixed, "tranche.dev"), "config 0 is for driver tranche.dev: a share has config for driver gpu.tranche.dev only"},
		"a config for a misspelt driver": {driven(fixed, "gpus.tranche.dev"), "config 0 is for driver gpus.tranche.dev: a"},
		"a config for a driver run on":   {driven(fixed, "gputranche.dev"), "config 0 is for driver gputranche.dev: a"},
		"a config for GPU in capitals":   {driven(fixed, "GPU.Tranche.dev"), "config 0 is for driver GPU.Tranche.dev: a"},
		"a config of ours for others":    {driven(fixed, "gpu.trance.dev"), "config 0 is for driver gpu.trance.dev: a share has config for driver gpu.tranche.dev only"},
		"nothing for a misspelt driver":  {one(share, "cores: 30, memory: 4Gi") + ", config: [{opaque: {driver: gpu.example.com, parameters: {}}}, {opaque: {driver: tranche.dev, parameters: {}}}]", "config 1 is for driver tranche.dev"},
		"a config for a claim of others": {one("gpu.example.com", "cores: 30") + ", config: [{opaque: {driver: gpu.tranche.dev, parameters: {kind: Nonsense}}}]", "config 0 must be"},

		"a subrequest": {
			"requests: [{name: gpu, firstAvailable: [{name: big, deviceClassName: share.tranche.dev, capacity: {requests: {cores: 50, memory: 8Gi}}}, {name: small, deviceClassName: share.tranche.dev, capacity: {requests: {cores: 150, memory: 8Gi}}}]}]",
			"request gpu/small (class share.tranche.dev) asks for cores: 150",
		},
		"the second of two requests": {
			"requests: [{name: a, exactly: {deviceClassName: share.tranche.dev, capacity: {requests: {cores: 20, memory: 2Gi}}}}, {name: b, exactly: {deviceClassName: share.tranche.dev, capacity: {requests: {cores: 20}}}}]",
			"request b (class share.tranche.dev) names cores: 20 but not memory",
		},
		"both of two requests": {
			"requests: [{name: a, exactly: {deviceClassName: share.tranche.dev}}, {name: b, exactly: {deviceClassName: card.tranche.dev, capacity: {requests: {cores: 20}}}}]",
			cardAt[:8] + "b (class card.tranche.dev) asks for cores: 20: whole cards are taken as they are, leave capacity out and say count: N; for a part of a card ask for class share.tranche.dev; request a (class share.tranche.dev) names no capacity",
		},
		"a request of ours beside another driver's": {
			"requests: [{name: nic, exactly: {deviceClassName: nic.example.com}}, {name: gpu, exactly: {deviceClassName: share.tranche.dev, capacity: {requests: {cores: -1, memory: 1Gi}}}}]",
			shareAt + "asks for cores: -1",
		},
		"a config of the parent of a subrequest": {
			configured("requests: [{name: gpu, firstAvailable: [{name: big, deviceClassName: share.tranche.dev, capacity: {requests: {cores: 50, memory: 8Gi}}}]}]", "class: offline"),
			"request gpu/big (class share.tranche.dev) asks for cores: 50, memory: 8Gi: an offline share asks for cores: 0",
		},
		"more than four things at once": {configured(one(share, "cores: -5, memory: -1, slots: 3, x: 1"), "policy: a, class: b"), "; and 2 more"},
	}
}

func TestClaimsPolicy(t *testing.T) {
	t.Parallel()
	claims := policy(t, "claims.gpu.tranche.dev")
	for name, row := range claimRows() {
		for kind, request := range map[string]admission.Request{
			"claim":    create(claim(t, row.devices), "resourceclaims"),
			"template": create(template(t, row.devices), "resourceclaimtemplates"),
		} {
			for _, schemaless := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s/schemaless=%t", name, kind, schemaless), func(t *testing.T) {
					t.Parallel()
					request := request // both subtests change it
					request.Schemaless = schemaless
					denials, err := claims.Review(t.Context(), request)
					require.NoError(t, err)
					if row.denial == "" {
						require.Empty(t, denials)
						return
					}
					require.Len(t, denials, 1)
					require.Contains(t, denials[0], row.denial)
				})
			}
		}
	}
}

// A claim of before the policy must still get its finalizers and labels changed.
func TestClaimsPolicyLooksAtNewSpecsOnly(t *testing.T) {
	t.Parallel()
	claims := policy(t, "claims.gpu.tranche.dev")
	bad := one("share.tranche.dev", "cores: 130, memory: 4Gi")
	for _, schemaless := range []bool{false, true} {
		old := claim(t, bad)
		labelled := claim(t, bad).(*resourceapi.ResourceClaim)
		labelled.Labels = map[string]string{"team": "a"}
		request := admission.Request{
			Operation: k8sadmission.Update,
			Resource:  resourceapi.SchemeGroupVersion.WithResource("resourceclaims"),
			Object:    labelled, OldObject: old, Schemaless: schemaless,
		}
		denials, err := claims.Review(t.Context(), request)
		require.NoError(t, err)
		require.Empty(t, denials)

		request.OldObject = claim(t, one("share.tranche.dev", "cores: 30, memory: 4Gi"))
		denials, err = claims.Review(t.Context(), request)
		require.NoError(t, err)
		require.Len(t, denials, 1)
	}
}

// The largest claim that the API server takes stays within the cost that the
// API server allows, and its message within the size.
func TestClaimsPolicyIsAffordable(t *testing.T) {
	t.Parallel()
	claims := policy(t, "claims.gpu.tranche.dev")
	build := func(cores string) string {
		var requests, configs []string
		for i := range 32 {
			var subs []string
			for j := range 8 {
				subs = append(subs, fmt.Sprintf("{name: %s%d, deviceClassName: share.tranche.dev, capacity: {requests: {cores: %s, memory: 4Gi, offlineCores: 0}}}",
					strings.Repeat("s", 25), j, cores))
			}
			name := fmt.Sprintf("%s%d", strings.Repeat("r", 30), i)
			requests = append(requests, fmt.Sprintf("{name: %s, firstAvailable: [%s]}", name, strings.Join(subs, ", ")))
			configs = append(configs, fmt.Sprintf("{requests: [%s], opaque: {driver: gpu.tranche.dev, parameters: {apiVersion: tranche.dev/v1alpha1, kind: ShareConfig, "+
				"policy: guaranteed-burst-share, class: online, burst: {ceiling: 100}}}}", name))
		}
		return "requests: [" + strings.Join(requests, ", ") + "], config: [" + strings.Join(configs, ", ") + "]"
	}
	denials, err := claims.Review(t.Context(), create(claim(t, build("30")), "resourceclaims"))
	require.NoError(t, err)
	require.Empty(t, denials)
	denials, err = claims.Review(t.Context(), create(claim(t, build("130")), "resourceclaims"))
	require.NoError(t, err)
	require.Len(t, denials, 1)
	require.Contains(t, denials[0], "; and 508 more", "256 requests, each past the card and past its ceiling")
}

// requested is the capacity that the only request of a claim names.
func requested(t *testing.T, devices string) map[string]resource.Quantity {
	t.Helper()
	asked := map[string]resource.Quantity{}
	exactly := claim(t, devices).(*resourceapi.ResourceClaim).Spec.Devices.Requests[0].Exactly
	if exactly.Capacity == nil {
		return asked
	}
	for k, v := range exactly.Capacity.Requests {
		asked[string(k)] = v
	}
	return asked
}

// decodeConfig reads the only config of a claim as the node does.
func decodeConfig(t *testing.T, devices string) *v1alpha1.ShareConfig {
	t.Helper()
	config := claim(t, devices).(*resourceapi.ResourceClaim).Spec.Devices.Config[0]
	decoded, err := v1alpha1.Decode(config.Opaque.Parameters.Raw)
	require.NoError(t, err)
	return decoded
}
