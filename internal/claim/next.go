package claim

// phase is where a claim is between its first request and its end. It says what the owner of a freeing has to do next.
type phase int8

const (
	live      phase = iota // nobody frees it
	sending                // a round is under way, or is to be sent
	resting                // the last round has failed, in a way that may pass: pause, ever longer, and then report due
	waiting                // asks are under way: what they take is freed when they have ended
	lingering              // an ask without an answer may arrive within a second: pause for that, and then report due
	freed                  // nothing of the token is there, or can come
	givenUp                // the keys expire with their ttl: the error of a round stays, or they can last no longer
)

// isOver reports whether no round follows.
func (p phase) isOver() bool { return p >= freed }

// state is what is known of a claim. The zero state is that of a claim for which nothing was asked yet.
type state struct {
	underWay int32 // asks that have not ended
	phase    phase
	taken    bool // keys were taken, or may have been, on which nobody relies, and no round was sent since
	doubtful bool // an ask has ended unanswered and may still arrive, and no round was sent a second later
}

// kind is what happens to a claim.
type kind int

const (
	ask      kind = iota // a request is about to be sent that may take keys; it must not be sent unless the claim is live
	learned              // such a request was sent before, of which the claim did not know
	ended                // such a request has ended; see event
	free                 // a Release: all keys are to be freed
	drop                 // an obtain has ended without a lock: what it may have taken is to be freed
	answered             // the round was
	failed               // the round has failed, in a way that may pass
	refused              // the round has failed, in a way that stays
	due                  // the pause is over
	hurry                // somebody wants the next round now: a Release joins, or the Client is closed
	expired              // the keys can last no longer than the pause
	crowded              // there is no room for a freeing that goes on in the background
)

// event is one thing that happens to a claim.
type event struct {
	kind  kind
	doubt bool // of an ask that has ended: it was not answered, and may still be executed
	took  bool // of an ask that has ended: its reply says that it has taken keys, and nobody relies on them
}

// next returns what an event makes of a state. It panics if the event cannot happen in that state.
func next(s state, e event) state {
	switch e.kind {
	case ask:
		if s.phase == live {
			s.underWay++
		}
	case learned:
		s.underWay++
	case ended:
		return s.ended(e)
	case free:
		if s.phase == live || s.phase == givenUp { // otherwise it joins
			return s.send()
		}
	case drop:
		if s.phase == live && s.taken {
			return s.send()
		} else if s.phase == live {
			return s.settle()
		}
	case answered, failed, refused:
		return s.concluded(e.kind)
	case due, hurry:
		if s.phase == lingering && e.kind == due { // what may arrive late cannot be hurried
			s.doubtful = false
			return s.send()
		} else if s.phase == resting {
			return s.send()
		}
	case expired:
		if s.phase == resting {
			return s.expire()
		}
	case crowded:
		if !s.phase.isOver() {
			s.phase = givenUp
		}
	}
	return s
}

// ended notes that an ask has ended.
func (s state) ended(e event) state {
	if s.underWay--; s.underWay < 0 {
		panic("more asks have ended than begun")
	}
	s.doubtful, s.taken = s.doubtful || e.doubt, s.taken || e.took || e.doubt
	if s.phase == waiting {
		return s.settle()
	}
	return s
}

// send begins a round.
func (s state) send() state {
	s.phase, s.taken = sending, false
	return s
}

// concluded notes how a round has ended.
func (s state) concluded(how kind) state {
	switch {
	case s.phase != sending:
		panic("a round has ended that was not sent")
	case how == answered:
		return s.settle()
	case how == failed:
		s.phase = resting
	default:
		s.phase = givenUp
	}
	return s
}

// settle decides what follows when no round is under way and none has failed.
func (s state) settle() state {
	switch {
	case s.underWay > 0:
		s.phase = waiting
	case s.taken:
		return s.send()
	case s.doubtful:
		s.phase = lingering
	default:
		s.phase = freed
	}
	return s
}

// expire ends a freeing whose rounds have failed for as long as the keys last, unless asks are under way: they may take keys
// for another ttl.
func (s state) expire() state {
	s.taken, s.doubtful = false, false
	if s.phase = givenUp; s.underWay > 0 {
		s.phase = waiting
	}
	return s
}
