// Measures client-go's cache the way `masthead bench cache` measures ours, and prints one JSON object
// of nanoseconds by name. Pods are read from standard input, one JSON object a line.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// As many updates as ours measures in a round and at a time, spread over the keys in the same order.
const (
	updates = 50_000
	atATime = 5_000
	stride  = 7919
	// Passes over all keys in each round of reads.
	readPasses = 100
)

func indexers() cache.Indexers {
	return cache.Indexers{
		"owner": func(obj any) ([]string, error) {
			pod := obj.(*corev1.Pod)
			values := make([]string, 0, len(pod.OwnerReferences))
			for _, owner := range pod.OwnerReferences {
				values = append(values, string(owner.UID))
			}
			return values, nil
		},
		"node": func(obj any) ([]string, error) {
			return []string{obj.(*corev1.Pod).Spec.NodeName}, nil
		},
	}
}

// next is a new state of a pod; most of it is shared with the old one, which is kind to the peer.
func next(pod *corev1.Pod, revision int, moved bool) *corev1.Pod {
	copied := *pod
	copied.ResourceVersion = strconv.Itoa(revision)
	if moved {
		copied.Spec.NodeName = "worker-" + strconv.Itoa(revision%200)
	}
	return &copied
}

func best(rounds int, measure func() float64) float64 {
	least := measure()
	for i := 1; i < rounds; i++ {
		least = min(least, measure())
	}
	return least
}

func each(since time.Time, n int) float64 {
	return float64(time.Since(since).Nanoseconds()) / float64(n)
}

type source struct {
	pods   []*corev1.Pod
	events chan watch.Event
}

func (s *source) Stop()                          {}
func (s *source) ResultChan() <-chan watch.Event { return s.events }

// pipeline measures a watch event's way through a shared informer with two indexes to one handler.
func pipeline(pods []*corev1.Pod) float64 {
	events, handled, end := fed(pods, 0, 1)
	defer end()
	least := math.Inf(1)
	for first := 0; first < min(updates, len(pods)); first += atATime {
		changes := make([]*corev1.Pod, atATime)
		for i := range changes {
			changes[i] = next(pods[(first+i)*stride%len(pods)], 10_000_000+first+i, false)
		}
		start := time.Now()
		for _, pod := range changes {
			events.events <- watch.Event{Type: watch.Modified, Object: pod}
		}
		handled.until(first + atATime)
		least = min(least, each(start, atATime))
	}
	return least
}

// noWatchList keeps the informer to plain lists: the source here has no streaming ones.
type noWatchList struct{}

func (noWatchList) IsWatchListSemanticsUnSupported() bool { return true }

func main() {
	rounds := flag.Int("rounds", 3, "rounds of each measurement, of which the best counts")
	address := flag.String("sync", "", "fill an informer from the server at this address instead")
	token := flag.String("token", "", "the token for it")
	ca := flag.String("ca", "", "the authority of its certificate, if it talks TLS")
	encoding := flag.String("encoding", "application/json", "what objects are asked for as")
	again := flag.Bool("again", false, "say when it has synced, and again when it has the revision that the input names")
	timeout := flag.Duration("timeout", 0, "when a request is cut")
	patience := flag.Duration("patience", time.Hour, "how long a sync may take")
	queue := flag.Bool("queue", false, "measure the work queue instead")
	onlyHandlers := flag.Bool("handlers", false, "measure handlers instead")
	flag.Parse()
	if *queue {
		queues(*rounds)
		return
	}
	if *address != "" {
		syncPods(*address, *token, *ca, *encoding, *timeout, *patience, *again)
		return
	}

	var pods []*corev1.Pod
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		pod := new(corev1.Pod)
		if err := json.Unmarshal(lines.Bytes(), pod); err != nil {
			panic(err)
		}
		pods = append(pods, pod)
	}
	if err := lines.Err(); err != nil {
		panic(err)
	}
	if *onlyHandlers {
		handlers(pods, *rounds)
		return
	}
	count := min(updates, len(pods))
	store := cache.NewIndexer(cache.MetaNamespaceKeyFunc, indexers())
	for _, pod := range pods {
		if err := store.Add(pod); err != nil {
			panic(err)
		}
	}
	revision := 1_000_000
	update := func(moved bool) func() float64 {
		return func() float64 {
			least := math.Inf(1)
			for first := 0; first < count; first += atATime {
				changes := make([]*corev1.Pod, atATime)
				for i := range changes {
					revision++
					changes[i] = next(pods[(first+i)*stride%len(pods)], revision, moved)
				}
				start := time.Now()
				for _, pod := range changes {
					if err := store.Update(pod); err != nil {
						panic(err)
					}
				}
				least = min(least, each(start, atATime))
			}
			return least
		}
	}
	keys := make([]string, len(pods))
	for i := range keys {
		pod := pods[i*stride%len(pods)]
		keys[i] = pod.Namespace + "/" + pod.Name
	}
	// Reads come first, as ours do: an update gives its key a new text, and reads in the order of updates
	// would go through those texts from the first to the last.
	figures := map[string]float64{
		"get": best(*rounds*readPasses, func() float64 {
			least := math.Inf(1)
			for chunk := range slices.Chunk(keys, atATime) {
				start := time.Now()
				for _, key := range chunk {
					if _, there, _ := store.GetByKey(key); !there {
						panic(key)
					}
				}
				least = min(least, each(start, len(chunk)))
			}
			return least
		}),
		"update_same":    best(*rounds, update(false)),
		"update_changed": best(*rounds, update(true)),
		"pipeline":       best(*rounds, func() float64 { return pipeline(pods) }),
	}
	encoded, err := json.Marshal(figures)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(encoded))
}
