package answer

// # Decisions
//
// One list says which answers pass: those after which the same call may succeed later although nobody changes the
// call, the user's rights or the server's configuration. The library, the command line tool and docs/guarantees.md had
// a list each, and each lacked something. MISCONF is on it: Redis tries again to save by itself, and a full disk is
// emptied by the people who fill it. OOM is on it: most of the other keys in memory expire. An operator may have to
// help, but a waiter cannot tell, and one that must not wait for an operator has a deadline; its error then wraps the
// answer. NOAUTH, WRONGPASS, NOPERM, WRONGTYPE, CROSSSLOT and a plain ERR are not on it: waiting would hide a mistake
// from the person who can correct it. MOVED and ASK are not: a client for a Cluster follows them, and one for a single
// server cannot. Redis 6 puts the code of an error that a script meets behind the place in the script, so the list is
// looked for there as well.
//
// The list is not exported. A caller who wants these answers to be waited out passes Queue and a deadline. An exported
// function would have to say whether the error of a wait that ctx has ended passes, or that of a quorum with several
// errors, and any answer would be wrong for some caller.
