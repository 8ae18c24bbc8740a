package main

import (
	"encoding/json"
	"math"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

const (
	// As many as `masthead bench resync` measures.
	resyncs = 5
	times   = 10
	four    = 4
)

// handlers measures processor time of handlers the way `masthead bench resync` measures ours, and prints
// one JSON object of nanoseconds by name.
func handlers(pods []*corev1.Pod, rounds int) {
	figures := map[string]float64{
		"resync": best(rounds, func() float64 { return resync(pods) }),
		"stay":   best(rounds, func() float64 { return toFour(pods, false) }),
		"moved":  best(rounds, func() float64 { return toFour(pods, true) }),
	}
	if err := json.NewEncoder(os.Stdout).Encode(figures); err != nil {
		panic(err)
	}
}

// seen counts the updates that handlers were told of, and tells somebody who waits for so many.
type seen struct {
	updates, wanted atomic.Int64
	there           chan struct{}
}

func (s *seen) oneMore() {
	if s.updates.Add(1) == s.wanted.Load() {
		s.there <- struct{}{}
	}
}

func (s *seen) until(updates int) {
	s.wanted.Store(int64(updates))
	for s.updates.Load() < int64(updates) {
		<-s.there
	}
}

// fed is a synced informer with two indexes: its source, what its handlers have seen, and its end.
func fed(pods []*corev1.Pod, resync time.Duration, handlers int) (*source, *seen, func()) {
	events := &source{pods: pods, events: make(chan watch.Event, 1024)}
	list := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}
	for _, pod := range pods {
		list.Items = append(list.Items, *pod)
	}
	informer := cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListFunc:  func(metav1.ListOptions) (runtime.Object, error) { return list, nil },
		WatchFunc: func(metav1.ListOptions) (watch.Interface, error) { return events, nil },
	}, noWatchList{}), &corev1.Pod{}, resync, indexers())
	updates := &seen{there: make(chan struct{}, 1024)}
	for range handlers {
		_, err := informer.AddEventHandlerWithResyncPeriod(cache.ResourceEventHandlerFuncs{
			UpdateFunc: func(_, _ any) { updates.oneMore() },
		}, resync)
		if err != nil {
			panic(err)
		}
	}
	stop := make(chan struct{})
	go informer.Run(stop)
	if !cache.WaitForCacheSync(stop, informer.HasSynced) {
		panic("never synced")
	}
	return events, updates, func() { close(stop) }
}

// resync is the processor time of one object that is told of again to one handler.
func resync(pods []*corev1.Pod) float64 {
	_, updates, end := fed(pods, time.Second, 1)
	defer end()
	updates.until(len(pods))
	before := processor()
	updates.until(len(pods) * (1 + resyncs))
	return (processor() - before) / float64(resyncs*len(pods))
}

// toFour is the processor time of one change from the watch to the last of four handlers, which moves the
// pod to another node or leaves its index values as they are.
func toFour(pods []*corev1.Pod, moved bool) float64 {
	events, updates, end := fed(pods, 0, four)
	defer end()
	least, revision := math.Inf(1), 1_000_000
	for round := 1; round <= times; round++ {
		changes := make([]*corev1.Pod, atATime)
		for i := range changes {
			revision++
			changes[i] = next(pods[i*stride%len(pods)], revision, moved)
		}
		before := processor()
		for _, pod := range changes {
			events.events <- watch.Event{Type: watch.Modified, Object: pod}
		}
		updates.until(four * atATime * round)
		least = min(least, (processor()-before)/atATime)
	}
	return least
}

// processor is what this process has used, in nanoseconds.
func processor() float64 {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		panic(err)
	}
	return float64(used.Utime.Nano() + used.Stime.Nano())
}
