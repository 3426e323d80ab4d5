// Package transport carries Lua scripts to one Redis: a server, a Cluster, a Ring, or whatever a custom client type
// hides. It resends calls that were not answered, lets simultaneous calls share pipelines and scripts, finds the server of a
// key, and listens to channels.
//
// It knows nothing about locks: not what a script does, what a token means, or how long a lock is held. Its files call
// each other in this order: link, send, senders, lane, batches, pipeline, resend, watch, and then the rest.
//
// decisions.go gives the reasons of what could be otherwise.
package transport
