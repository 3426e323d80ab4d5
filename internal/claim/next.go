package claim

// phase is where a claim is between its first request and its end.
type phase int8

const (
	live     phase = iota // nobody frees it
	sending               // a round is under way
	resting               // the last round has failed, in a way that may pass
	settling              // no round is of use now: asks are under way, or one may arrive late
	freed                 // nothing of the token is there, or can come
	givenUp               // the keys expire with their ttl: the error of a round stays, or they can last no longer
)

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
	ask      kind = iota // a request is about to be sent that may take keys
	learned              // such a request was sent before, of which the claim did not know
	ended                // such a request has ended; see event
	free                 // a Release: all keys are to be freed
	drop                 // an obtain has ended without a lock: what it may have taken is to be freed
	answered             // the round was
	failed               // the round has failed, in a way that may pass
	refused              // the round has failed, in a way that stays
	due                  // the pause is over
	hurry                // somebody wants the next round now: a Release joins, or the Client is closed
	expired              // the keys can last no longer
	crowded              // there is no room for a freeing that goes on in the background
)

// event is one thing that happens to a claim.
type event struct {
	kind  kind
	doubt bool // of an ask that has ended: it was not answered, and may still be executed
	took  bool // of an ask that has ended: its reply says that it has taken keys, and nobody relies on them
}

// action is what the owner of a claim has to do.
type action int

const (
	nothing action = iota
	refuse         // do not send the request: nobody would free what it takes
	send           // send a round
	retry          // pause, for longer after each failure, and then report due
	linger         // pause for a second, in which a request without an answer arrives if it ever does, and then report due
	end            // the freeing has ended
)

// next returns what an event makes of a state, and what to do. It panics if the event cannot happen in that state.
func next(s state, e event) (state, action) {
	switch e.kind {
	case ask:
		if s.phase != live {
			return s, refuse
		}
		s.underWay++
		return s, nothing
	case learned:
		if s.phase != freed {
			s.underWay++
			return s, nothing
		}
	case ended:
		return s.ended(e)
	case free:
		if s.phase == live || s.phase == givenUp {
			return s.send()
		}
		return s, nothing // it joins
	case drop:
		switch {
		case s.phase != live:
			return s, nothing
		case s.taken:
			return s.send()
		}
		return s.settle()
	case answered, failed, refused:
		if s.phase == sending {
			return s.concluded(e.kind)
		}
	case due:
		switch {
		case s.phase == settling && s.underWay == 0:
			s.doubtful = false
			return s.send()
		case s.phase == resting:
			return s.send()
		}
	case hurry:
		if s.phase == resting {
			return s.send()
		}
		return s, nothing // what may arrive late cannot be hurried
	case expired:
		if s.phase == resting {
			return s.expire()
		}
	case crowded:
		s.phase = givenUp
		return s, end
	}
	panic("a claim in this phase has no such event")
}

// ended notes that an ask has ended.
func (s state) ended(e event) (state, action) {
	if s.underWay--; s.underWay < 0 {
		panic("more asks have ended than begun")
	}
	s.doubtful, s.taken = s.doubtful || e.doubt, s.taken || e.took || e.doubt
	if s.phase == settling && s.underWay == 0 {
		return s.settle()
	}
	return s, nothing
}

// send begins a round.
func (s state) send() (state, action) {
	s.phase, s.taken = sending, false
	return s, send
}

// concluded notes how a round has ended.
func (s state) concluded(how kind) (state, action) {
	switch how {
	case answered:
		return s.settle()
	case failed:
		s.phase = resting
		return s, retry
	default:
		s.phase = givenUp
		return s, end
	}
}

// settle decides what follows when no round is under way and none has failed.
func (s state) settle() (state, action) {
	s.phase = settling
	switch {
	case s.underWay > 0:
		return s, nothing
	case s.taken:
		return s.send()
	case s.doubtful:
		return s, linger
	}
	s.phase = freed
	return s, end
}

// expire ends a freeing whose rounds have failed for as long as the keys last, unless asks are under way: they may take keys
// for another ttl.
func (s state) expire() (state, action) {
	s.taken, s.doubtful = false, false
	if s.underWay > 0 {
		s.phase = settling
		return s, nothing
	}
	s.phase = givenUp
	return s, end
}
