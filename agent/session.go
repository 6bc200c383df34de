package agent

import (
	"time"

	broker "github.com/bourse-dev/bourse/api/broker/v1alpha1"
)

// step is what a session wants done next.
type step uint8

const (
	stepWait    step = iota // nothing until the wake time, or a touch
	stepEnsure              // look for the advertisement, create it where absent
	stepOpen                // ask for an epoch, with the present facts
	stepMeasure             // compare the present facts with the last accepted
	stepReport              // send the present facts
	stepPoll                // look whether the advertisement is Stale
)

// stage is where a session stands.
type stage uint8

const (
	stageEnsuring stage = iota // is there an advertisement?
	stageOpening               // no epoch yet
	stageLive                  // the exchange listens
	stageSilent                // a newer agent speaks for this cluster
)

// session is the agent's conversation with the exchange as a pure machine: next says what to
// do and when, the other methods say what came of it. It has no goroutine, clock or I/O.
type session struct {
	heartbeatEvery time.Duration
	publishWithin  time.Duration
	backoff

	stage    stage
	epoch    int64
	sequence int64 // grows for the life of the process: an exchange may give the same epoch twice

	touchedAt time.Time // first change since the last look; zero: none
	pending   bool      // the present facts differ from the accepted
	accepted  facts
	heardAt   time.Time // last answer Accepted
	pollAt    time.Time
}

// next says what to do now. Where that is nothing: wake is when to ask again, zero for never
// (until something changes).
func (s *session) next(now time.Time) (do step, wake time.Time) {
	if now.Before(s.notBefore) {
		return stepWait, s.notBefore
	}
	switch s.stage {
	case stageEnsuring:
		return stepEnsure, now
	case stageOpening:
		return stepOpen, now
	case stageSilent:
		if now.Before(s.pollAt) {
			return stepWait, s.pollAt
		}
		return stepPoll, now
	default:
		return s.nextLive(now)
	}
}

func (s *session) nextLive(now time.Time) (do step, wake time.Time) {
	beat := s.heardAt.Add(s.heartbeatEvery)
	if s.pending || !now.Before(beat) {
		return stepReport, now
	}
	if s.touchedAt.IsZero() {
		return stepWait, beat
	}
	look := s.touchedAt.Add(s.publishWithin)
	if !now.Before(look) {
		return stepMeasure, now
	}
	if look.Before(beat) {
		return stepWait, look
	}
	return stepWait, beat
}

// touch says that figures may have changed.
func (s *session) touch(now time.Time) {
	if s.touchedAt.IsZero() {
		s.touchedAt = now
	}
}

// measured answers stepMeasure.
func (s *session) measured(present facts) {
	s.touchedAt = time.Time{}
	s.pending = !present.equal(s.accepted)
}

// ensured answers stepEnsure: the advertisement exists. It ends no backoff: only an answer to
// a report does, so that an exchange that has advertisements but takes no reports isn't hammered.
func (s *session) ensured() {
	s.stage, s.epoch = stageOpening, 0
}

// missing answers stepOpen, stepReport and stepPoll: the advertisement doesn't exist (any more).
func (s *session) missing(now time.Time) {
	if s.stage == stageOpening {
		s.failed(now) // it was there a moment ago
	}
	s.stage = stageEnsuring
}

// sending prepares a report: it carries the session's epoch and the next sequence.
func (s *session) sending(report *broker.FactsReport) {
	s.sequence++
	report.Epoch, report.Sequence = s.epoch, s.sequence
}

// answered answers stepOpen and stepReport. It returns false where the answer makes no sense.
func (s *session) answered(now time.Time, sent facts, answer broker.FactsReportStatus) bool {
	switch {
	case answer.Outcome == broker.FactsAccepted && answer.Epoch > 0:
		s.calm()
		// What opened the session is sent again as its first report: an opening only promises an epoch.
		s.pending = s.stage == stageOpening
		s.stage, s.epoch = stageLive, answer.Epoch
		s.accepted, s.heardAt = sent, now
		return true
	case answer.Outcome == broker.FactsSuperseded:
		s.calm()
		s.stage, s.pollAt = stageSilent, now.Add(s.heartbeatEvery)
		return true
	case answer.Outcome == broker.FactsUnknownSession && s.epoch != 0:
		s.calm()
		s.stage, s.epoch = stageOpening, 0
		return true
	default:
		s.failed(now)
		return false
	}
}

// polled answers stepPoll.
func (s *session) polled(now time.Time, phase broker.AdvertisementPhase) {
	s.calm()
	if phase == broker.AdvertisementStale {
		s.stage, s.epoch = stageOpening, 0
		return
	}
	s.pollAt = now.Add(s.heartbeatEvery)
}
