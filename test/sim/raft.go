package main

// Timing of the group, in milliseconds.
const (
	heartbeatEvery   = 700
	electionShortest = 2500
	electionLongest  = 5000
	leaderLease      = 2500
	trailingEntries  = 4 // kept beside a snapshot, at most
)

// message is any of Raft's own.
type message struct {
	from        *node
	term        uint64
	index       uint64 // before the entries, or of the voter's last
	indexTerm   uint64
	entries     []entry
	commit      uint64
	round       uint64
	transferred bool // the old leader asked for this election
}

func (n *node) quorum() int { return len(n.trace.nodes)/2 + 1 }

// hear is for every message: a newer term ends whatever this node was. false: the sender is behind.
func (n *node) hear(term uint64) bool {
	if term > n.disk.term {
		n.disk.term, n.disk.votedFor = term, -1
		n.stepDown()
	}
	return term == n.disk.term
}

func (n *node) stepDown() {
	was := n.raft.role
	n.raft.role = follower
	n.raft.votes = nil
	if was != leader {
		return
	}
	n.raft.leader = -1
	for index := n.raft.commit + 1; index <= n.disk.last(); index++ {
		if p := n.raft.proposals[index]; p != nil {
			p.lost = true
			delete(n.raft.proposals, index)
			p.finish(n)
		}
	}
	for _, v := range n.raft.verifying {
		v.lost = true
		v.finish(n)
	}
	n.raft.verifying = nil
	n.raft.lastContact = n.trace.now
	n.watchElection()
	n.leadershipChanged(false)
}

// watchElection calls an election when no leader was heard for long.
func (n *node) watchElection() {
	n.raft.timeout = between(n.trace.raftDice, electionShortest, electionLongest)
	n.electionWatch++
	n.lookForLeader(n.electionWatch, n.raft.timeout)
}

func (n *node) lookForLeader(watch int, delay int64) {
	t := n.trace
	t.after(delay, quiet, n.id, func() {
		if n.electionWatch != watch || !n.up || n.raft.role == leader {
			return
		}
		due := n.raft.lastContact + n.raft.timeout
		if t.now >= due && n.asleepUntil <= t.now {
			n.raft.timeout = between(t.raftDice, electionShortest, electionLongest)
			n.raft.lastContact = t.now
			n.campaign(false)
			due = t.now + n.raft.timeout
		}
		n.lookForLeader(watch, max(due, n.asleepUntil)-t.now)
	})
}

func (n *node) campaign(transferred bool) {
	n.disk.term++
	n.disk.votedFor = n.id
	n.raft.role, n.raft.leader = candidate, -1
	n.raft.votes = map[int]bool{n.id: true}
	n.trace.tell("n%d calls an election for term %d", n.id, n.disk.term)
	m := message{from: n, term: n.disk.term, index: n.disk.last(), indexTerm: n.disk.lastTerm(), transferred: transferred}
	for _, to := range n.trace.nodes {
		if to != n {
			n.trace.send(n, to, "vote?", func() { to.voteAsked(m) })
		}
	}
}

func (n *node) voteAsked(m message) {
	contact := n.raft.leader >= 0 && n.raft.leader != m.from.id && n.trace.now < n.raft.lastContact+electionShortest/2
	if contact && n.raft.role == follower && !m.transferred {
		return // as hashicorp/raft: a node that hears its leader ignores who doesn't
	}
	current := n.hear(m.term)
	fresh := m.indexTerm > n.disk.lastTerm() || m.indexTerm == n.disk.lastTerm() && m.index >= n.disk.last()
	granted := current && n.raft.role == follower && fresh && (n.disk.votedFor < 0 || n.disk.votedFor == m.from.id)
	if granted {
		n.disk.votedFor = m.from.id
		n.raft.lastContact = n.trace.now
	}
	term := n.disk.term
	n.trace.send(n, m.from, "vote", func() { m.from.voted(n.id, term, granted) })
}

func (n *node) voted(by int, term uint64, granted bool) {
	if !n.hear(term) || n.raft.role != candidate || !granted {
		return
	}
	n.raft.votes[by] = true
	if len(n.raft.votes) >= n.quorum() {
		n.lead()
	}
}

func (n *node) lead() {
	t := n.trace
	t.tell("n%d leads term %d", n.id, n.disk.term)
	t.stats.elections++
	n.raft.role, n.raft.leader = leader, n.id
	size := len(t.nodes)
	n.raft.next, n.raft.match = make([]uint64, size), make([]uint64, size)
	n.raft.heard, n.raft.acked = make([]int64, size), make([]uint64, size)
	for i := range size {
		n.raft.next[i], n.raft.heard[i] = n.disk.last()+1, t.now
	}
	n.place(nil)
	n.leadershipChanged(true)
	life, term := n.life, n.disk.term
	var beat func()
	beat = func() {
		if n.life != life || n.disk.term != term || n.raft.role != leader {
			return
		}
		if n.asleepUntil > t.now {
			t.after(n.asleepUntil-t.now, quiet, n.id, beat)
			return
		}
		if !n.keepsLease() {
			t.tell("n%d hears no majority: steps down", n.id)
			n.stepDown()
			return
		}
		n.replicate()
		t.after(heartbeatEvery, quiet, n.id, beat)
	}
	t.after(heartbeatEvery, quiet, n.id, beat)
}

// keepsLease says whether a majority was heard of late. A node that believes in itself goes on longer.
func (n *node) keepsLease() bool {
	near := 1
	for i, at := range n.raft.heard {
		if i != n.id && n.trace.now-at <= leaderLease {
			near++
		}
	}
	return near >= n.quorum() || n.trace.now < n.stubbornUntil
}

// place appends to this leader's log and returns the place.
func (n *node) place(data []byte) uint64 {
	n.disk.log = append(n.disk.log, entry{n.disk.term, data})
	index := n.disk.last()
	n.sync(index, n.advanceCommit)
	n.replicate()
	return index
}

// sync writes the log up to index to the disk, in its time.
func (n *node) sync(upTo uint64, done func()) {
	t, life := n.trace, n.life
	delay := between(t.diskDice, 0, 4)
	if t.now < n.slowDiskUntil {
		delay = between(t.diskDice, 100, 2500)
		t.fire("slow fsync")
	}
	f := &fsync{upTo: upTo, done: done}
	n.raft.syncs = append(n.raft.syncs, f)
	t.after(delay, "fsync", n.id, func() {
		if n.life != life {
			return
		}
		for i, other := range n.raft.syncs {
			if other == f {
				n.raft.syncs = append(n.raft.syncs[:i], n.raft.syncs[i+1:]...)
				break
			}
		}
		n.disk.synced = max(n.disk.synced, min(f.upTo, n.disk.last()))
		f.done()
	})
}

func (n *node) cutLog(after uint64) {
	n.disk.cutAfter(after)
	for _, f := range n.raft.syncs {
		f.upTo = min(f.upTo, after)
	}
}

// replicate sends each follower what it lacks, or a heartbeat.
func (n *node) replicate() {
	n.raft.round++
	for _, to := range n.trace.nodes {
		if to != n {
			n.replicateTo(to)
		}
	}
}

func (n *node) replicateTo(to *node) {
	next := n.raft.next[to.id]
	if next <= n.disk.base {
		n.sendSnapshot(to)
		return
	}
	upTo := min(n.disk.last(), next+63)
	m := message{
		from: n, term: n.disk.term, index: next - 1, indexTerm: n.disk.termAt(next - 1),
		entries: n.disk.log[next-n.disk.base-1 : upTo-n.disk.base], commit: n.raft.commit, round: n.raft.round,
	}
	name := "append"
	if len(m.entries) == 0 {
		name = quiet
	}
	n.trace.send(n, to, name, func() { to.append(m) })
}

// append is a follower's part of replication.
func (n *node) append(m message) {
	if !n.hear(m.term) {
		n.answer(m, 0, false)
		return
	}
	n.raft.role, n.raft.leader, n.raft.lastContact = follower, m.from.id, n.trace.now
	d := n.disk
	if m.index < d.base { // what the snapshot holds is committed, so it is the same
		skip := min(d.base-m.index, uint64(len(m.entries)))
		m.entries, m.index = m.entries[skip:], m.index+skip
		if m.index < d.base {
			n.answer(m, m.index, true)
			return
		}
		m.indexTerm = d.termAt(m.index)
	}
	if m.index > d.last() || d.termAt(m.index) != m.indexTerm {
		n.answer(m, min(d.last(), m.index-1), false)
		return
	}
	added := false
	for i := range m.entries {
		index := m.index + uint64(i) + 1
		if index <= d.last() {
			if d.termAt(index) == m.entries[i].term {
				continue
			}
			if index <= n.raft.commit {
				n.trace.fail("the simulator's own log: n%d would cut committed entry %d", n.id, index)
				return
			}
			n.cutLog(index - 1)
		}
		d.log = append(d.log, m.entries[i])
		added = true
	}
	match := m.index + uint64(len(m.entries))
	n.commitTo(min(m.commit, match))
	if !added && d.synced >= match {
		n.answer(m, match, true)
		return
	}
	term := d.term
	n.sync(match, func() {
		if d.term == term {
			n.answer(m, min(match, d.synced), true)
		}
	})
}

func (n *node) answer(m message, match uint64, ok bool) {
	term, to := n.disk.term, m.from
	name := "answer"
	if len(m.entries) == 0 {
		name = quiet
	}
	n.trace.send(n, to, name, func() { to.answered(n, term, m, match, ok) })
}

func (n *node) answered(by *node, term uint64, m message, match uint64, ok bool) {
	if !n.hear(term) || n.raft.role != leader || m.term != n.disk.term {
		return
	}
	n.raft.heard[by.id] = n.trace.now
	n.raft.acked[by.id] = max(n.raft.acked[by.id], m.round)
	n.checkVerified()
	if !ok {
		if n.raft.next[by.id] > match+1 {
			n.raft.next[by.id] = match + 1 // even below what it had: a disk may have lost that
			n.replicateTo(by)
		}
		return
	}
	n.raft.match[by.id] = max(n.raft.match[by.id], match)
	n.raft.next[by.id] = max(n.raft.next[by.id], match+1)
	n.advanceCommit()
	if len(m.entries) > 0 && n.raft.next[by.id] <= n.disk.last() {
		n.replicateTo(by)
	}
}

// advanceCommit commits what a majority has on its disks, once that is of this term.
func (n *node) advanceCommit() {
	if n.raft.role != leader {
		return
	}
	for index := n.disk.last(); index > n.raft.commit && n.disk.termAt(index) == n.disk.term; index-- {
		have := 0
		for i, match := range n.raft.match {
			if i == n.id && n.disk.synced >= index || i != n.id && match >= index {
				have++
			}
		}
		if have >= n.quorum() {
			n.commitTo(index)
			return
		}
	}
}
