package agent

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
)

// act is what to do to a slice's Deployment.
type act string

const (
	actNone   act = ""
	actPut    act = "put" // make it, or make it as it should be
	actDelete act = "delete"
)

// sight is all that is known of one slice at one time.
type sight struct {
	slice    *broker.Slice // nil: there is none
	refusal  string        // why the cluster did not consent; empty: it did
	allowed  bool          // to what the workload runs it does consent
	workload *workload     // nil: there is none, or it is unseen
	unseen   bool          // the agent may not look whether there is one
	settled  bool          // the workload is as it should be
	pods     podCount
	fault    fault // what came of the last act; zero: it was done
	listed   bool  // the exchange is heard: what it does not have is not there
}

// name of the Deployment, whether it is there or not. One of slice and workload is.
func (s *sight) name() types.NamespacedName {
	if s.slice != nil {
		return types.NamespacedName{Namespace: s.slice.Namespace, Name: workloadName(s.slice.Name)}
	}
	return s.workload.name
}

// fault is why an act failed.
type fault struct {
	reason string
	text   string
	final  bool // trying again changes nothing until somebody does something about it
}

// progress is what must be remembered of a slice from one look to the next. The zero progress knows nothing.
type progress struct {
	uid     types.UID
	spec    broker.SliceSpec // the instruction that all below speaks of
	since   time.Time        // when it came, was last nearer to its end, or was left behind by its workload
	best    int32            // the most instances that were ready
	done    bool             // it was carried out
	failed  bool             // it took too long
	orphan  time.Time        // since when the workload has no slice
	counted bool             // its failure is in the metrics
}

// verdict is what to do and what to report.
type verdict struct {
	act      act
	state    broker.SliceState
	message  string
	reason   string // why Failed, in a word
	refused  bool
	unloaded bool
	wake     time.Time // when to look again though nothing changes; zero: never
}

// way leads to what a command asks for.
type way struct {
	busy, done broker.SliceState
	limit      time.Duration
	doing      string
}

var ways = map[broker.SliceCommand]way{
	broker.SliceLoad:       {broker.SliceLoading, broker.SliceLoaded, loadWithin, "loaded"},
	broker.SliceActivate:   {broker.SliceActivating, broker.SliceActive, activateWithin, "active"},
	broker.SliceDeactivate: {broker.SliceDeactivating, broker.SliceLoaded, deactivateWithin, "deactivated"},
	broker.SliceUnload:     {broker.SliceUnloading, broker.SliceUnloading, unloadWithin, "unloaded"},
}

// judge says what to do about a slice and what to report of it. It is pure: the same sight, memory and time give the
// same verdict.
func judge(now time.Time, was progress, s *sight) (verdict, progress) {
	if s.slice == nil {
		return judgeOrphan(now, was, s)
	}
	p := was.follow(now, s)
	command := s.slice.Spec.Command
	if s.refusal != "" && (command == broker.SliceLoad || command == broker.SliceActivate) {
		p.done, p.failed = false, true
		v := verdict{state: broker.SliceFailed, message: s.refusal, reason: "Refused", refused: true}
		// A version that is refused does not cost the one before, until the exchange has said what should run then.
		if goesOn := s.allowed && command == broker.SliceActivate; !goesOn && s.workload.mayDelete() {
			v.act = actDelete
		}
		return v, p
	}
	w, known := ways[command]
	if !known {
		p.failed = true
		return verdict{state: broker.SliceFailed, reason: "Unknown", message: fmt.Sprintf("command %q is unknown to this agent; it may be too old", command)}, p
	}
	v, done := s.toward(command)
	return p.settle(now, w, v, done, s)
}

// follow starts the clock anew where the instruction is another one. What an earlier process said of the same one stands.
func (p progress) follow(now time.Time, s *sight) progress {
	if p.uid == s.slice.UID && equality.Semantic.DeepEqual(p.spec, s.slice.Spec) {
		p.orphan = time.Time{}
		return p
	}
	next := progress{uid: s.slice.UID, spec: s.slice.Spec, since: now}
	said := &s.slice.Status
	if p.uid == "" && said.State == broker.SliceFailed && said.ObservedGeneration == s.slice.Generation {
		next.failed, next.counted = true, true
	}
	return next
}

// toward says what brings a command nearer to its end, and whether it is there.
func (s *sight) toward(command broker.SliceCommand) (v verdict, done bool) {
	empty := s.pods.live == 0 && s.pods.leaving == 0
	there := s.workload != nil && !s.workload.leaving
	switch command {
	case broker.SliceUnload:
		if s.workload.mayDelete() {
			v.act = actDelete
		}
		v.unloaded = empty && !s.mayBeThere()
		return v, v.unloaded
	case broker.SliceDeactivate:
		if s.workload == nil || !s.workload.ours {
			return v, empty
		}
	}
	switch {
	case there && !s.workload.ours, s.workload != nil && s.workload.leaving:
		return v, false // not ours to touch, or on its way out: made again once it is gone
	case !s.settled:
		v.act = actPut
		return v, false
	case command == broker.SliceActivate:
		return v, s.pods.live == s.slice.Spec.Instances && s.pods.current == s.slice.Spec.Instances
	case command == broker.SliceDeactivate:
		return v, empty
	default:
		return v, true
	}
}

// mayBeThere says whether a Deployment of ours is left. Of one that can't be seen the slice's status tells: whether the
// agent ever made it, and whether it saw it gone.
func (s *sight) mayBeThere() bool {
	if !s.unseen {
		return s.workload != nil && s.workload.ours
	}
	said := &s.slice.Status
	if refused := meta.FindStatusCondition(said.Conditions, broker.ConditionRefused); refused != nil {
		return refused.Reason == reasonNotRemoved
	}
	return said.State != "" && !meta.IsStatusConditionTrue(said.Conditions, broker.ConditionUnloaded)
}

// unsure: what the book knows of it may be out of date, and no watch will say so. One that leaves may be gone: the
// watch can have told of its end before the answer to our own deletion was read.
func (w *workload) unsure() bool { return w != nil && (!w.ours || w.leaving) }

func (w *workload) mayDelete() bool { return w != nil && w.ours && !w.leaving }

// settle turns what was seen into a state, and lets time run out.
func (p progress) settle(now time.Time, w way, v verdict, done bool, s *sight) (verdict, progress) {
	if done {
		p.done, p.failed, p.counted = true, false, false
		p.best = s.pods.current
		v.state = w.done
		return v, p
	}
	switch {
	case p.done: // it was there, and is no more: a pod died, somebody changed the workload
		p.done, p.since, p.best = false, now, s.pods.current
	case s.pods.current > p.best:
		p.since, p.best = now, s.pods.current
	}
	end := p.since.Add(w.limit)
	why := s.why()
	p.failed = p.failed || why.final || !now.Before(end)
	v.state, v.message = w.busy, why.text
	if !p.failed {
		v.wake = end
		return v, p
	}
	v.state, v.reason = broker.SliceFailed, why.reason
	if v.reason == "" {
		v.reason = "Timeout"
	}
	if !why.final {
		v.message = fmt.Sprintf("not %s within %s", w.doing, w.limit)
		if why.text != "" {
			v.message += ": " + why.text
		}
	}
	return v, p
}

// why says what is in the way, in the words of whoever knows best.
func (s *sight) why() fault {
	switch {
	case s.workload != nil && !s.workload.ours:
		return fault{reason: "Foreign", final: true, text: fmt.Sprintf("Deployment %s exists and is not ours: it is left alone", s.workload.name)}
	case s.fault.text != "":
		return s.fault
	case s.workload != nil && s.workload.failure != "":
		return fault{reason: "Pods", text: "pods can't be made: " + s.workload.failure}
	}
	missing := fault{reason: s.pods.trouble.reason, text: s.pods.words()}
	if spec := &s.slice.Spec; spec.Command == broker.SliceActivate {
		counted := fmt.Sprintf("%d of %d instances ready", s.pods.current, spec.Instances)
		if missing.text != "" {
			counted += "; " + missing.text
		}
		missing.text = counted
	} else if left := s.pods.live + s.pods.leaving; left > 0 {
		missing.text = "left are " + podsText(left)
	}
	return missing
}

// judgeOrphan removes a workload whose slice is gone, once that has been so for a while.
func judgeOrphan(now time.Time, was progress, s *sight) (verdict, progress) {
	p := progress{orphan: was.orphan}
	if !s.workload.mayDelete() {
		return verdict{}, progress{}
	}
	if !s.listed {
		return verdict{}, progress{} // an exchange that can't be heard takes nothing away
	}
	if p.orphan.IsZero() {
		p.orphan = now
	}
	if end := p.orphan.Add(orphanGrace); now.Before(end) {
		return verdict{wake: end}, p
	}
	return verdict{act: actDelete}, p
}
