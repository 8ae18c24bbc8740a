// One program in three roles, by its first argument: the real kube-apiserver, the real etcd that it
// keeps its objects in, and the child that starts both for a measurement.
package main

import (
	"fmt"
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
)

func main() {
	role := ""
	if len(os.Args) > 1 {
		role = os.Args[1]
	}
	switch role {
	case "kube-apiserver":
		os.Args = os.Args[1:]
		os.Exit(cli.Run(app.NewAPIServerCommand()))
	case "etcd":
		// etcd takes its program's name from the first of these, and its flags from the rest.
		etcdmain.Main(os.Args[1:])
	case "child":
		if err := child(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	default:
		fmt.Fprintln(os.Stderr, "the first argument is kube-apiserver, etcd or child")
		os.Exit(2)
	}
}
