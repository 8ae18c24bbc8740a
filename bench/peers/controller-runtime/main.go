// The controller of `masthead bench controller` with controller-runtime: each deployment has a config map, and
// its status says that this was seen to. The server is the one of $KUBECONFIG.
package main

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/go-logr/logr"
)

const workers = 8

type reconciler struct{ client.Client }

func (r reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var deployment appsv1.Deployment
	if err := r.Get(ctx, request.NamespacedName, &deployment); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	var configMap corev1.ConfigMap
	err := r.Get(ctx, request.NamespacedName, &configMap)
	if errors.IsNotFound(err) {
		err = r.create(ctx, &deployment)
	}
	if err != nil || deployment.Status.ObservedGeneration == deployment.Generation {
		return ctrl.Result{}, err
	}
	patch := client.MergeFrom(deployment.DeepCopy())
	deployment.Status.ObservedGeneration = deployment.Generation
	deployment.Status.Replicas = 1
	return ctrl.Result{}, r.Status().Patch(ctx, &deployment, patch)
}

func (r reconciler) create(ctx context.Context, deployment *appsv1.Deployment) error {
	var configMap corev1.ConfigMap
	configMap.Name, configMap.Namespace = deployment.Name, deployment.Namespace
	if err := ctrl.SetControllerReference(deployment, &configMap, r.Scheme()); err != nil {
		return err
	}
	// The cache may not have it yet.
	return client.IgnoreAlreadyExists(r.Create(ctx, &configMap))
}

func main() {
	log.SetLogger(logr.Discard())
	config := ctrl.GetConfigOrDie()
	// No limit, and the format that the others use.
	config.QPS = -1
	config.ContentType, config.AcceptContentTypes = "application/json", "application/json"
	manager, err := ctrl.NewManager(config, ctrl.Options{Metrics: server.Options{BindAddress: "0"}})
	if err != nil {
		panic(err)
	}
	err = ctrl.NewControllerManagedBy(manager).
		For(&appsv1.Deployment{}).
		Owns(&corev1.ConfigMap{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		Complete(reconciler{manager.GetClient()})
	if err != nil {
		panic(err)
	}
	if err := manager.Start(ctrl.SetupSignalHandler()); err != nil {
		panic(err)
	}
}
