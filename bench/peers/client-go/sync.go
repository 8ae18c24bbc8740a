package main

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// syncPods fills a shared informer's cache with all pods the way `masthead bench sync` fills ours, and
// prints one JSON object: seconds on the clock and of processor, bytes resident afterwards and at the most.
func syncPods(address, token, ca, encoding string, timeout, patience time.Duration, again bool) {
	began := time.Now()
	config := &rest.Config{
		Host:        "http://" + address,
		BearerToken: token,
		QPS:         -1,
		Timeout:     timeout,
		ContentConfig: rest.ContentConfig{
			ContentType:        encoding,
			AcceptContentTypes: encoding,
		},
	}
	if ca != "" {
		config.Host = "https://" + address
		config.CAFile = ca
	}
	client := kubernetes.NewForConfigOrDie(config)
	factory := informers.NewSharedInformerFactory(client, 0)
	informer := factory.Core().V1().Pods().Informer()
	stop := make(chan struct{})
	factory.Start(stop)
	tired := make(chan struct{})
	time.AfterFunc(patience, func() { close(tired) })
	// One that never syncs has what it has.
	cache.WaitForCacheSync(tired, informer.HasSynced)
	if again {
		fmt.Println("synced")
		var revision int
		if _, err := fmt.Scan(&revision); err != nil {
			panic(err)
		}
		for reached := 0; reached < revision; reached, _ = strconv.Atoi(informer.LastSyncResourceVersion()) {
			time.Sleep(10 * time.Millisecond)
		}
		fmt.Println("again")
	}
	wall, processor := time.Since(began).Seconds(), processorSeconds()
	peak := status("VmHWM:")
	debug.FreeOSMemory()
	time.Sleep(3 * time.Second)
	figures := map[string]any{
		"objects": len(informer.GetStore().List()), "wall": wall, "processor": processor,
		"resident": status("VmRSS:"), "peak": peak,
	}
	if err := json.NewEncoder(os.Stdout).Encode(figures); err != nil {
		panic(err)
	}
	// The pods are held until here.
	runtime.KeepAlive(informer)
}

// processorSeconds are ticks of 10 ms, fields 14 and 15.
func processorSeconds() float64 {
	stat, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		panic(err)
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	user, _ := strconv.ParseFloat(fields[11], 64)
	system, _ := strconv.ParseFloat(fields[12], 64)
	return (user + system) / 100
}

func status(name string) uint64 {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		panic(err)
	}
	for line := range strings.Lines(string(text)) {
		if rest, found := strings.CutPrefix(line, name); found {
			kib, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			if err != nil {
				panic(err)
			}
			return kib * 1024
		}
	}
	panic(fmt.Sprintf("no %s", name))
}
