package main

// What happened since it was last asked for: kept in order, and waited for.

import (
	"sync"
	"time"
)

var (
	lock    sync.Mutex // of events, connections and channels
	changed = sync.NewCond(&lock)
	events  []answer
)

func happened(event, connection string, channel any, what answer) {
	what["event"], what["connection"], what["channel"] = event, connection, channel
	lock.Lock()
	events = append(events, what)
	changed.Broadcast()
	lock.Unlock()
}

// matching are the first events of a kind for a channel or its connection; the lock is held.
func matching(r *request, event string, count int) (found []int) {
	for i, one := range events {
		if len(found) < count && one["event"] == event && one["connection"] == r.Connection &&
			(one["channel"] == nil || one["channel"] == r.Channel) {
			found = append(found, i)
		}
	}
	return found
}

func waitFor(r *request, event string, count int, limit time.Duration) []int {
	deadline := time.Now().Add(limit)
	timer := time.AfterFunc(limit, func() { lock.Lock(); changed.Broadcast(); lock.Unlock() })
	defer timer.Stop()
	found := matching(r, event, count)
	for len(found) < count && time.Now().Before(deadline) {
		changed.Wait()
		found = matching(r, event, count)
	}
	return found
}

// forget what happened to an earlier connection of that name.
func forget(connection string) {
	lock.Lock()
	defer lock.Unlock()
	kept := []answer{}
	for _, one := range events {
		if one["connection"] != connection {
			kept = append(kept, one)
		}
	}
	events = kept
}

func wait(r *request) (answer, error) {
	lock.Lock()
	defer lock.Unlock()
	taken, kept := []answer{}, []answer{}
	found := waitFor(r, r.Event, r.Count, time.Duration(r.Seconds*float64(time.Second)))
	for i, one := range events {
		if len(found) > 0 && found[0] == i {
			taken, found = append(taken, one), found[1:]
		} else {
			kept = append(kept, one)
		}
	}
	events = kept
	return answer{"events": taken}, nil
}
