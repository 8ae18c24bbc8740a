// Measures client-go's typed rate-limiting queue the way `masthead bench queue` measures ours.
package main

import (
	"encoding/json"
	"math"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/util/workqueue"
)

const (
	// Keys that come and go, and operations in a round, as in ours.
	queueKeys   = 1_000
	queueCycles = 1_000_000
	// A producer lets others run after so many adds.
	queueBurst = 64
)

// figures are metrics that count and nothing more: less than what Prometheus' own client does, which is
// kind to the peer.
type figures struct{ value atomic.Int64 }

func (f *figures) Inc()        { f.value.Add(1) }
func (f *figures) Dec()        { f.value.Add(-1) }
func (f *figures) Set(float64) {}

type histogram struct {
	buckets [13]atomic.Int64
	sum     atomic.Uint64
}

func (h *histogram) Observe(seconds float64) {
	bound, at := 1e-8, 0
	for at < 12 && seconds > bound {
		bound, at = bound*10, at+1
	}
	h.buckets[at].Add(1)
	for {
		old := h.sum.Load()
		if h.sum.CompareAndSwap(old, math.Float64bits(math.Float64frombits(old)+seconds)) {
			return
		}
	}
}

type provider struct{}

func (provider) NewDepthMetric(string) workqueue.GaugeMetric            { return new(figures) }
func (provider) NewAddsMetric(string) workqueue.CounterMetric           { return new(figures) }
func (provider) NewLatencyMetric(string) workqueue.HistogramMetric      { return new(histogram) }
func (provider) NewWorkDurationMetric(string) workqueue.HistogramMetric { return new(histogram) }
func (provider) NewRetriesMetric(string) workqueue.CounterMetric        { return new(figures) }
func (provider) NewUnfinishedWorkSecondsMetric(string) workqueue.SettableGaugeMetric {
	return new(figures)
}
func (provider) NewLongestRunningProcessorSecondsMetric(string) workqueue.SettableGaugeMetric {
	return new(figures)
}

type rateLimiting = workqueue.TypedRateLimitingInterface[string]

func newQueue() rateLimiting {
	return workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.DefaultTypedControllerRateLimiter[string](),
		workqueue.TypedRateLimitingQueueConfig[string]{Name: "bench", MetricsProvider: provider{}},
	)
}

func queueNames(count int) []string {
	names := make([]string, count)
	for i := range names {
		names[i] = "namespace/name-" + strconv.Itoa(i)
	}
	return names
}

// cycle is one key added, taken and done, one after the other.
func cycle(names []string) float64 {
	queue := newQueue()
	defer queue.ShutDown()
	start := time.Now()
	for i := range queueCycles {
		queue.Add(names[i%queueKeys])
		key, _ := queue.Get()
		queue.Done(key)
	}
	return each(start, queueCycles)
}

// repeated is keys added that wait already.
func repeated(names []string) float64 {
	queue := newQueue()
	defer queue.ShutDown()
	start := time.Now()
	for i := range queueCycles {
		queue.Add(names[i%queueKeys])
	}
	return each(start, queueCycles)
}

// crowd has producers and workers share a queue, and says nanoseconds a key until all is done. Each key
// is added once, so that both have the same to do.
func crowd(names []string, producers, workers int) float64 {
	queue := newQueue()
	var adding, working sync.WaitGroup
	start := time.Now()
	for range workers {
		working.Go(func() {
			for {
				key, shutdown := queue.Get()
				if shutdown {
					return
				}
				queue.Done(key)
			}
		})
	}
	share := queueCycles / producers
	for producer := range producers {
		adding.Go(func() {
			for i := range share {
				queue.Add(names[producer*share+i])
				if i%queueBurst == 0 {
					runtime.Gosched()
				}
			}
		})
	}
	adding.Wait()
	queue.ShutDown()
	working.Wait()
	return each(start, share*producers)
}

// delay is the 99th percentile from add to get with a worker that waits for each key.
func delay(names []string) float64 {
	queue := newQueue()
	const samples = 20_000
	delays := make([]time.Duration, 0, samples)
	added := make(chan time.Time, 1)
	done := make(chan struct{})
	go func() {
		for {
			key, shutdown := queue.Get()
			if shutdown {
				close(done)
				return
			}
			delays = append(delays, time.Since(<-added))
			queue.Done(key)
		}
	}()
	for i := range samples {
		added <- time.Now()
		queue.Add(names[i%queueKeys])
		for len(added) > 0 {
			runtime.Gosched()
		}
	}
	queue.ShutDown()
	<-done
	slices.Sort(delays)
	return float64(delays[len(delays)*99/100].Nanoseconds())
}

// queues prints nanoseconds by name.
func queues(rounds int) {
	names, eachOnce := queueNames(queueKeys), queueNames(queueCycles)
	measured := map[string]float64{
		"cycle":    best(rounds, func() float64 { return cycle(names) }),
		"repeated": best(rounds, func() float64 { return repeated(names) }),
		"one":      best(rounds, func() float64 { return crowd(eachOnce, 1, 1) }),
		"four":     best(rounds, func() float64 { return crowd(eachOnce, 4, 4) }),
		"p99":      best(rounds, func() float64 { return delay(names) }),
	}
	if err := json.NewEncoder(os.Stdout).Encode(measured); err != nil {
		panic(err)
	}
}
