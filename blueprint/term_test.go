package blueprint

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
	"github.com/bourse-dev/bourse/cluster"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
)

func TestABlueprintBecomesActiveAndGoesWithoutATrace(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	for _, id := range []string{"berlin", "paris", "rome"} {
		x.cluster(id, "cpu=8,memory=32Gi", "0.5")
	}
	x.create(blueprint("shop", "web=7*cpu=1", "db=1*cpu=2,memory=4Gi"))
	x.run()
	require.Equal(t, "db@paris=1 web@berlin=3 web@paris=2 web@rome=2", x.placed("shop"))
	require.Equal(t, broker.BlueprintProgressing, x.get("shop").Status.Phase)
	for _, s := range x.rows() {
		require.Equal(t, broker.SliceLoad, s.object.Spec.Command)
		require.False(t, s.object.CreationTimestamp.IsZero())
		require.NotEmpty(t, s.held(), "capacity is held before anything is loaded")
	}
	x.rest()
	status := x.get("shop").Status
	require.Equal(t, broker.BlueprintActive, status.Phase, status.Message)
	require.EqualValues(t, 8, status.Ready)
	require.NotNil(t, status.ActivatedAt)
	require.Len(t, status.History, 1)
	require.Equal(t, "3.50", status.Slices[0].PricePerHour)
	require.Zero(t, x.refusals)

	x.delete(x.key("shop"))
	x.rest()
	require.Empty(t, x.rows())
	for _, a := range x.agents {
		require.Empty(t, a.work)
		require.Empty(t, x.state.Row(a.key()).Account.Held)
	}
}

// shop is three clusters of 8 cores with a blueprint of seven instances that are all ready.
func shop(t *testing.T, change ...func(*Config)) *exchange {
	x := newExchange(t, change...)
	for _, id := range []string{"berlin", "paris", "rome"} {
		x.cluster(id, "cpu=8,memory=32Gi", "0.5")
	}
	x.create(blueprint("shop", "web=7*cpu=1"))
	x.rest()
	require.Equal(t, broker.BlueprintActive, x.get("shop").Status.Phase)
	require.Equal(t, "web@berlin=3 web@paris=2 web@rome=2", x.placed("shop"))
	x.onEntry = x.consistent
	return x
}

func TestALostClusterIsReplacedAndItsSliceGoesWhenItIsBack(t *testing.T) {
	t.Parallel()
	x := shop(t)
	x.agents["paris"].up = false
	x.agents["paris"].advertise()
	x.rest()
	require.Equal(t, "web@berlin=4 web@rome=3", x.placed("shop"))
	require.Equal(t, broker.BlueprintActive, x.get("shop").Status.Phase)
	require.Len(t, x.rows(), 3, "what may run in paris yet still holds its capacity")
	require.EqualValues(t, 2000, x.state.Row(x.agents["paris"].key()).Account.Held.Get("cpu"))

	x.delete(x.key("shop"))
	x.rest()
	require.Len(t, x.rows(), 1)
	x.agents["paris"].up = true
	x.agents["paris"].advertise()
	x.rest()
	require.Empty(t, x.rows())
	require.Empty(t, x.agents["paris"].work)
}

func TestABlueprintOfTheSameNameIsAnother(t *testing.T) {
	t.Parallel()
	x := shop(t)
	x.delete(x.key("shop"))
	x.create(blueprint("shop", "web=2*cpu=1"))
	x.rest()
	require.Equal(t, "web@berlin=1 web@paris=1", x.placed("shop"))
	for _, s := range x.rows() {
		require.Equal(t, string(x.get("shop").UID), s.record.UID)
	}
}

func TestWhatIsChangedByHandIsPutRight(t *testing.T) {
	t.Parallel()
	x := shop(t)
	before := x.placed("shop")
	for how := range 4 {
		x.vandalize(x.rows()[how%3], how)
		x.rest()
		require.Equal(t, before, x.placed("shop"))
	}
	require.Equal(t, map[string]string{"by": "hand"}, x.rows()[0].object.Annotations, "metadata is the user's")
	x.delete(x.rows()[1].row.Key)
	x.rest()
	require.Equal(t, before, x.placed("shop"))

	stranger := x.rows()[0].object.DeepCopy()
	stranger.Name, stranger.UID = "stranger", "stranger"
	body, err := store.SliceBody(stranger)
	require.NoError(t, err)
	x.onEntry = nil
	x.write(fsm.Txn{Writes: []fsm.Write{{Key: broker.SliceKey("team", "stranger"), Body: body}}})
	x.rest()
	require.Len(t, x.rows(), 3, "a slice that the room did not write is unloaded")
	require.Equal(t, before, x.placed("shop"))
}

func TestShortSharesMoveAsFarAsTheyAreShort(t *testing.T) {
	t.Parallel()
	x := shop(t)
	berlin := x.agents["berlin"]
	berlin.own = amounts("cpu=7")
	berlin.report()
	x.run()
	s := x.rows()[0]
	require.True(t, isShort(s.row.Ledger))
	require.Equal(t, 3, s.record.Instances, "it stays until what takes its place is ready")
	x.rest()
	require.Equal(t, "web@berlin=1 web@paris=3 web@rome=3", x.placed("shop"))
	require.False(t, isShort(x.rows()[0].row.Ledger))

	for _, a := range x.agents { // nowhere is room: they stay where they are, marked
		a.own = amounts("cpu=8")
		a.report()
	}
	x.rest()
	require.Equal(t, "web@berlin=1 web@paris=3 web@rome=3", x.placed("shop"))
	for _, s := range x.rows() {
		require.True(t, isShort(s.row.Ledger))
	}
}

func TestAMemberThatDoesNotConsentRunsNothing(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	rome := x.cluster("rome", "cpu=8", "")
	rome.consents = false
	rome.advertise()
	x.create(blueprint("shop", "web=2*cpu=1"))
	x.rest()
	require.Empty(t, x.rows())
	require.Contains(t, x.get("shop").Status.Message, "2 of 2 instances have no place: rome: runs no blueprints: by flags")
	rome.consents = true
	rome.advertise()
	x.rest()
	require.Equal(t, "web@rome=2", x.placed("shop"))

	x.cluster("paris", "cpu=8", "")
	const image = "registry.example.com/web:1"
	rome.refuses = map[string]bool{image: true}
	x.rest()
	require.Equal(t, "web@paris=2", x.placed("shop"))
	var refused *share
	for _, s := range x.rows() {
		if s.record.Cluster == "rome" {
			refused = s
		}
	}
	require.Equal(t, "not allowed here", refused.status().Message, "the slice says why")
	require.Empty(t, refused.held())
	rome.refuses = nil
	x.rest()
	require.Len(t, x.rows(), 1, "nothing to keep it for")
	x.edit("shop", func(s *broker.BlueprintSpec) { *s.Slices[0].Instances = 3 })
	x.rest()
	require.Equal(t, "web@paris=2 web@rome=1", x.placed("shop"))
}

func TestAVersionThatNeedsRoomBesideWaitsForItAndSaysSo(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	rome := x.cluster("rome", "cpu=4", "")
	b := blueprint("shop", "web=4*cpu=1")
	none, one := intstr.FromInt32(0), intstr.FromInt32(1)
	b.Spec.Rollout = broker.BlueprintRollout{MaxUnavailable: &none, MaxSurge: &one}
	x.create(b)
	x.rest()
	x.edit("shop", func(s *broker.BlueprintSpec) { s.Slices[0].Artifact = "registry.example.com/web:2" })
	x.rest()
	require.Contains(t, x.get("shop").Status.Message, "web: no room on rome to change its version")
	require.Equal(t, "registry.example.com/web:1", x.rows()[0].object.Spec.Image)
	rome.allocatable = amounts("cpu=5")
	rome.report()
	x.rest()
	require.Equal(t, broker.BlueprintActive, x.get("shop").Status.Phase)
	require.Equal(t, "registry.example.com/web:2", x.rows()[0].object.Spec.Image)
	require.EqualValues(t, 4000, x.rows()[0].held().Get("cpu"), "what was held beside is given back")
}

func TestACordonedClusterGetsANewVersionOnlyInPlaceOfTheOld(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	rome := x.cluster("rome", "cpu=4", "")
	x.create(blueprint("shop", "web=1*cpu=1"))
	x.rest()
	rome.spec.Lending.Cordoned = true
	rome.advertise()
	b := x.get("shop").DeepCopy()
	b.Spec.Slices[0].Artifact = "registry.example.com/web:2"
	plan := Plan(Policy{}, x.state, b, x.now).Changes
	require.Len(t, plan, 1)
	require.False(t, plan[0].NewVersion)
	require.Equal(t, "cordoned by its provider: no new version may come up beside the old one", plan[0].Reason)
	x.edit("shop", func(s *broker.BlueprintSpec) { *s = b.Spec })
	x.rest()
	require.Equal(t, "web: rome is "+plan[0].Reason, x.get("shop").Status.Message)
	one := intstr.FromInt32(1)
	b.Spec.Rollout.MaxUnavailable = &one
	require.True(t, Plan(Policy{}, x.state, b, x.now).Changes[0].NewVersion)
	x.edit("shop", func(s *broker.BlueprintSpec) { *s = b.Spec })
	x.rest()
	require.Equal(t, broker.BlueprintActive, x.get("shop").Status.Phase)
	require.Equal(t, "registry.example.com/web:2", x.rows()[0].object.Spec.Image)
}

func TestInstancesKeepTheirSizeUntilThereIsRoomForTheNewOne(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	rome := x.cluster("rome", "cpu=4", "")
	b := blueprint("shop", "web=4*cpu=1")
	one := intstr.FromInt32(1)
	b.Spec.Rollout.MaxUnavailable = &one
	x.create(b)
	x.rest()
	x.edit("shop", func(s *broker.BlueprintSpec) { s.Slices[0].Resources = list("cpu=2") })
	x.rest()
	require.Equal(t, "web@rome=4", x.placed("shop"), "four of the old size, not two of the new one")
	require.Equal(t, 4, x.readyPods())
	require.Contains(t, x.get("shop").Status.Message, "no room on rome to change its version")
	rome.allocatable = amounts("cpu=8")
	rome.report()
	x.rest()
	require.Equal(t, "web@rome=4", x.placed("shop"))
	require.EqualValues(t, 8000, x.rows()[0].held().Get("cpu"))
	require.Equal(t, broker.BlueprintActive, x.get("shop").Status.Phase)
}

// What leaves frees room that others are to have; who took it on the way would have to give up all of it.
func TestASizeThatHasNoPlaceInTheEndIsNotTakenOnTheWay(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	x.cluster("rome", "cpu=8", "")
	b := blueprint("shop", "api=1*cpu=2", "web=5*cpu=1")
	one := intstr.FromInt32(1)
	b.Spec.Reconciliation, b.Spec.Rollout.MaxUnavailable = broker.ReconcileAggressive, &one
	x.create(b)
	x.rest()
	b = x.get("shop").DeepCopy()
	b.Spec.Slices[0].Instances = ptr.To[int32](3)
	b.Spec.Slices[1].Instances = ptr.To[int32](1)
	b.Spec.Slices[1].Resources = list("cpu=5")
	plan := Plan(Policy{Rebalance: true}, x.state, b, x.now).Changes
	require.Len(t, plan, 2)
	require.Equal(t, "fewer instances are wanted; no room to change its version", plan[1].Reason)
	x.edit("shop", func(s *broker.BlueprintSpec) { *s = b.Spec })
	x.rest()
	require.Equal(t, "api@rome=3 web@rome=1", x.placed("shop"))
	require.Contains(t, x.get("shop").Status.Message, "web: no room on rome to change its version")
}

func TestAFailedSliceIsTriedAgainWithBackoffWhoeverLeads(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	x.cluster("rome", "cpu=8", "").bad = map[string]bool{"registry.example.com/web:1": true}
	x.create(blueprint("shop", "web=1*cpu=1"))
	x.rest()
	require.Equal(t, broker.BlueprintDegraded, x.get("shop").Status.Phase)
	var tries []fsm.Millis
	start, last := x.now, int32(0)
	for range 200 {
		x.now += second
		x.begin()
		x.run()
		x.act()
		if attempt := x.rows()[0].object.Spec.Attempt; attempt != last {
			last = attempt
			tries = append(tries, (x.now-start)/second)
		}
	}
	require.GreaterOrEqual(t, len(tries), 4)
	for i := 2; i < len(tries); i++ {
		pause := tries[i] - tries[i-1]
		require.True(t, pause > tries[i-1]-tries[i-2] || pause >= minute/second, "each pause is longer, up to a minute: %v", tries)
	}
	x.agents["rome"].bad = nil
	x.pass(5 * minute)
	require.Equal(t, broker.BlueprintActive, x.get("shop").Status.Phase)
}

func TestRefusedForTooLongIsDegradedAndSaysWhy(t *testing.T) {
	t.Parallel()
	x := shop(t)
	x.edit("shop", func(s *broker.BlueprintSpec) { *s.Slices[0].Instances = 9 })
	for range 60 {
		out := x.plan()
		for _, item := range out.Propose {
			x.settled = append(x.settled, cluster.Settled{Item: item, Result: fsm.Result{
				Refusal: &fsm.Refusal{Kind: fsm.RefusedClosed, Key: "clusteradvertisements/rome-adv"},
			}})
		}
		x.now += 5 * second
	}
	x.run()
	require.Positive(t, x.commands)
	x.edit("shop", func(s *broker.BlueprintSpec) { s.Strategy = broker.StrategySpread })
	for range 3 { // all but the status is refused
		out := x.plan()
		for _, item := range out.Propose {
			if item.Txn.Writes[0].Facts != nil {
				x.enter(cluster.Output{Propose: []cluster.Item{item}})
				continue
			}
			x.settled = append(x.settled, cluster.Settled{Item: item, Result: fsm.Result{
				Refusal: &fsm.Refusal{Kind: fsm.RefusedClosed, Key: "clusteradvertisements/rome-adv"},
			}})
		}
		x.now += 3 * minute
	}
	x.rest()
	require.Equal(t, broker.BlueprintActive, x.get("shop").Status.Phase, "and not for longer than that")
}

func TestBlueprintsAndReservationsShareTheSameCores(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	x.cluster("rome", "cpu=8", "")
	holder := broker.ReservationKey("rome", "r")
	x.write(fsm.Txn{
		Writes: []fsm.Write{{Key: holder, Body: []byte("{}"), Ledger: &fsm.Ledger{Phase: store.PhaseReserved}}},
		Moves:  []fsm.Move{{Op: fsm.MoveHold, Account: broker.AdvertisementKey("rome"), Holder: holder, Amounts: amounts("cpu=5")}},
	})
	x.create(blueprint("shop", "web=4*cpu=1"))
	x.rest()
	require.Equal(t, "web@rome=3", x.placed("shop"))
	require.Contains(t, x.get("shop").Status.Message, "1 of 4 instances have no place: rome: cpu 1 requested, 0 available")
	x.write(fsm.Txn{Writes: []fsm.Write{{Key: holder, Delete: true}}})
	x.rest()
	require.Equal(t, "web@rome=4", x.placed("shop"), "what waits is placed once there is room")
}

func TestTheRoomIsDormantUntilHoldsCanBeResized(t *testing.T) {
	t.Parallel()
	x := newExchange(t)
	x.state = fsm.New()
	x.changes = nil
	x.begin()
	x.cluster("rome", "cpu=8", "")
	x.create(blueprint("shop", "web=4*cpu=1"))
	out := x.plan()
	require.Empty(t, out.Propose)
	require.Equal(t, x.now+dormantPoll, out.Wake)
	x.apply(fsm.Entry{Time: x.now, Behaviour: fsm.ResizeBehaviour})
	x.now = out.Wake
	x.rest()
	require.Equal(t, "web@rome=4", x.placed("shop"))
}

func TestCoordinatesNeedAMappedGroup(t *testing.T) {
	t.Parallel()
	registries := broker.ArtifactRegistries{"com.example": "registry.example.com/team"}
	x := newExchange(t, func(c *Config) { c.Registries = registries })
	x.cluster("rome", "cpu=8", "")
	b := blueprint("shop", "web=1*cpu=1", "db=1*cpu=1")
	b.Spec.Slices[0].Artifact, b.Spec.Slices[1].Artifact = "com.example:web:1.2", "org.other:db:7"
	x.create(b)
	x.rest()
	require.Equal(t, "web@rome=1", x.placed("shop"))
	require.Equal(t, "registry.example.com/team/com.example/web:1.2", x.rows()[0].object.Spec.Image)
	require.Contains(t, x.get("shop").Status.Message, `no registry is mapped for group "org.other"`)
}

func TestSliceNamesAreDistinctAndShortEnough(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 253)
	seen := map[string]bool{}
	for _, c := range [][5]string{
		{"ns", "b", "u", "s", "c"},
		{"ns", "b", "u2", "s", "c"},
		{"ns2", "b", "u", "s", "c"},
		{"ns", "b-s", "u", "s", "c"},
		{"ns", "b", "u", "s-s", "c"},
		{"ns", long, "u", "s", "c"},
		{"ns", long, "u", "s", "d"},
	} {
		name := SliceName(c[0], c[1], c[2], c[3], c[4])
		require.LessOrEqual(t, len(name), 253)
		require.False(t, seen[name], name)
		seen[name] = true
	}
	require.Regexp(t, `^b-s-c-[0-9a-f]{8}$`, SliceName("ns", "b", "u", "s", "c"))
}

func TestWhatIsObserved(t *testing.T) {
	t.Parallel()
	seen := map[Event]int{}
	x := shop(t, func(c *Config) {
		c.Observe = func(o Observation) { seen[o.Event] += max(1, o.Count) }
	})
	require.Equal(t, 1, seen[EventActivated])
	require.Zero(t, seen[EventMoved])
	x.agents["paris"].up = false
	x.agents["paris"].advertise()
	x.rest()
	require.Equal(t, 2, seen[EventMoved], "the instances that were lost")
	x.agents["rome"].consents = false
	x.agents["rome"].advertise()
	x.delete(x.key("shop"))
	x.agents["paris"].up = true
	x.agents["paris"].advertise()
	x.rest()
	require.Equal(t, 1, seen[EventGone])
	require.Positive(t, seen[EventReconciled])
	require.Positive(t, seen[EventStatus])
}
