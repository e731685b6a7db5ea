// SPDX-License-Identifier: Apache-2.0

// Package lease decides which share may use a card, and for how long. It is a
// state machine in virtual time: it reads no clock, starts nothing, and gives the
// same decisions for the same calls. The arbiter tells it what happens (a share
// wants the card, has nothing in flight any more, is added, changed, gone), asks
// what is to be done, does it, and asks again when something happens or the time
// has come that the machine named.
//
// A Scheduler is not safe for concurrent use.
//
// # What a card does
//
// One tenant at a time holds a card: its lease is open, everybody else's is
// closed. When the lease is over the word is closed, the tenant drains (what it had in
// flight ends), and then the next one is opened. Who does not drain within
// Config.Drain keeps the others waiting no longer: they are opened, the hardware
// divides the card between their processes, and each is charged its part of that time.
//
// It takes some 100 us from when work ends until the next one's launches reach the card: three
// threads wake. So a tenant may say shortly before that it will have drained (Drains), and the
// next one's first launches wait behind the last of its work. The time until then is
// the one's who leaves. Where that was wrong, it says so (Lags) and is charged on. And who has
// drained within 200 us some times in a row, as programs do that launch little at a time, is
// not waited for by others of its level: the next one is opened as it is closed. Where it then has not
// drained after 200 us, the next one is closed again and waits, as for anybody: two who have the card at once
// are charged equal parts, and who launches little at a time has hardly anything of it beside a long
// kernel.
//
// A lease is held from its opening until the tenant is drained or wants the card no
// more. That time is what shares are made of; not the time that the card was busy
// (which nobody can measure that fast), nor wall time divided by the number of
// tenants.
//
// A tenant that is alone on its card and may use all of it is Free, and nobody
// counts. A lease that nobody else waits for stays with its last holder, even while
// it is idle, so that the first launch after a pause costs nothing.
//
// # Two levels
//
// Offline tenants are the lower level, all others the upper one. The lower level has
// the card while no tenant of the upper one could use it: an upper one that wants the card
// closes the lower holder at once and is opened without waiting until that has drained.
// The clock of the lower level stands still meanwhile, so that its tenants share
// what they get by the same rules among themselves, with offlineCores for cores.
//
// When an online tenant goes idle the lower level waits before it comes in: twice the
// 95th percentile of that tenant's own last 32 gaps, but Config.Hold at least and
// LongestHold at most. Only gaps up to half of LongestHold count: longer ones are
// pauses between pieces of work, and would keep offline work out of cards that are
// all but idle. (A fixed time, 100 ms say, is either too long for a busy card with
// pauses of 50 ms or too short for one with long gaps.) While the lower level has the
// card, idle online tenants are open with Tell: they launch at once, and say so.
// An upper tenant that its ceiling keeps from the card does not keep the lower level
// from it.
//
// # Rates
//
// Each time that the set of those who want a card changes, each of them gets a rate, a
// part of the card:
//
//   - fixed-share and guaranteed-burst tenants get their cores, scaled down where they are
//     more than the whole;
//   - what is left is poured over guaranteed-burst and native-burst tenants by weight
//     (their cores) and over best-effort ones (weight 1), each to its ceiling;
//   - all tenants without a guarantee together get 0.5 % before anything else, which is within what is promised of shares: a
//     best-effort share beside guarantees of 100 % is slow, but does not hang.
//
// So A=20 and B=30 get 40 and 60 as guaranteed-burst tenants when both are busy, the
// other one 100 when one sleeps, and 20 and 30 when C=50 comes. As fixed ones they
// get 20 and 30 whatever others do. A share with no cores has no guarantee under any policy: it
// is best-effort, up to its burst ceiling where the policy has one.
//
// # Balances
//
// While somebody holds the card for a time d, all who want it are credited their
// rate's part of d, and the holder is charged d. The balances of a level, those who sleep
// included, add up to nothing, so what one is owed others owe. The next holder is the one
// with the greatest lag: balance divided by part, that is how long ago it should have had what
// it is owed. (The greatest balance alone keeps small tenants waiting behind large
// ones. Lottery or stride scheduling without debts is wrong with kernels that are longer
// than turns.)
//
// A turn is the tenant's rate of a round: as many times Config.Quantum as there are
// tenants, LongestQuantum at most; and ShortestQuantum at least, whereupon a small tenant's
// turns are rarer instead. So 20/30/50 have turns of 4, 6 and 10 ms, 10/90 of 2 and 18 ms,
// sixteen equal ones of 2 ms. A longer turn wastes less in hand-overs (some 50 us
// on average), a shorter one makes others wait less. Tenants with a ceiling may pass it by a
// turn: their rounds are of half of Quantum, so fixed 20/30/50 have 3, 4.5 and 7.5 ms.
// At the end of its turn the holder goes on if its lag is still the greatest.
//
// Kernels are not interrupted, so turns are overrun; the overrun is a debt like any
// other, and is paid by later turns. Debts are bounded by 10 s of the tenant's part (but
// one second, which may take 100 s at most), so that a process that was stopped for an
// hour does not make its share wait for days.
// Lags count up to what the least claim on the card can come to, gangs' aside: the claims of
// fixed shares are bounded, and beside work that never ends, of which others are owed more and
// more, they would never be first. Beyond that bound tenants take turns.
//
// A tenant that goes to sleep keeps what it is owed, Config.Credit at most, and what it
// owes. A debt is paid off at the tenant's part while it sleeps, by what it leaves those of its
// creditors whose rate is more than what they are guaranteed: their claims shrink by that. A fixed
// share has no more when others sleep, and its claim on them stays. Debts are also paid off, at half
// of the part, while the tenant wants the card and nobody uses it, and up to what it is guaranteed
// by those whose rate is more. Balances do not
// change when somebody wakes or sleeps: who flaps neither loses a debt nor gains a
// credit, and moves nothing between others. (Shifting everybody so that those who want the card
// add up to nothing robs a guaranteed tenant beside one that flaps, because rates differ before
// and after.)
//
// # Waking
//
// A tenant that wakes need not wait for the end of the holder's turn: as soon as its lag
// is the greater one, and the lease is Config.Least old, the holder is closed. Someone
// who slept for long has a lag of nothing, and a holder who had the card for himself
// as well, so the owner of idle compute has it back after Least and a drain. Least bounds
// what frequent wakers cost: one hand-over a millisecond.
//
// # Ceilings
//
// A fixed share's cores and a burst ceiling below 100 % are never passed by more than a turn (and
// a kernel), and what others kept it waiting for, in any window of time: a second account, room, grows at the ceiling in
// real time and falls while the tenant holds the card. A turn begins only when room is
// not negative. What is not used is lost: room does not grow above zero while
// the tenant sleeps, nor above what a wait of a second comes to while others keep it waiting. (A
// bucket that fills while the tenant sleeps would let it pass its ceiling by the bucket. One that
// is full after 20 ms had a fixed share of 50 % get 31 beside kernels of 90 ms.)
// Tenants with a ceiling are always Contended, so that their idle time is not charged
// to it.
//
// # Gangs
//
// Shares of one claim on several cards are opened together, those of them that want
// their cards, and closed together when the turn of any of them is over. Where one of
// them does not want its card others use it: a claim on two cards whose process uses
// one costs the other one nothing. But who took part a moment ago goes on taking part while
// another one wants its card: one thread that feeds several cards is at one of them at a
// time, and would have them one by one, each in a turn of its own.
//
// A gang's lag is the least of its members', so that it has no more than its part on any card,
// and is the same on all cards: of two gangs that meet on several cards one is first on
// all of them, and they cannot wait for each other. Cards are freed for a gang that is
// first in line on all of them when all holders are owed less within
// Config.Least. Otherwise the next one has the card, and as the gang is owed more and
// more, it comes to that. (Taking cards one by one, each kept until the last is there,
// needs an order of cards to be free of deadlocks, and leaves cards idle for whole
// turns.) Holders whose work takes long to drain, as it did of late, are closed first, and the
// others go on until it has: with kernels of 4 ms on one card the other one would be idle for
// 2 ms each time, and a fixed share of 40 % beside a gang would have 36 %. What is idle all the same is
// by the turn, so a gang's turns are longer: its part of twice LongestQuantum, LongestQuantum at most.
//
// A gang can be closed when some ranks have launched a collective and others have not; such
// a kernel spins until the others are opened. Stuck opens a gang of which some have drained
// and some have not again for a shortest turn, which is cut short for nobody of its level, for Config.Drain after its turn as often as
// is needed, later once in each such time; all of it is charged. Ranks that keep in step
// (they are opened and closed at once) are rarely caught so. Where half of an offline collective spins
// while online work has the other half's card, it spins for as long as that takes.
//
// # What is trusted
//
// Nothing. A tenant that says it wants the card and does not use it pays for the time.
// One that never drains costs the others Config.Drain, and pays. One that flaps costs
// the others a hand-over each Config.Least, as long as it is owed something. Work that runs without being in
// flight by anybody's word is charged when the card has told of it (Charge).
package lease
