// Command kube holds the parts of Kubernetes that a test cluster runs, so that one build yields them all.
//
//	kube PART [FLAG...]
//
// Each part takes the flags of the program whose place it has; `kube pki` and `kube kubectl-server` are our own.
package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/ready"
	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// Parts read os.Args themselves; by the time one is called, os.Args[0] is its own name.
var parts = map[string]func(){
	"apiserver":          command(apiserver.NewAPIServerCommand),
	"controller-manager": command(controllers.NewControllerManagerCommand),
	"dns":                dns,
	"etcd":               func() { etcdmain.Main(os.Args) },
	"kubectl":            command(kubectl.NewDefaultKubectlCommand),
	"kubectl-server":     kubectlServer,
	"kubelet":            command(func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) }),
	"pki":                pki,
	"proxy":              command(proxy.NewProxyCommand),
	"scheduler":          command(func() *cobra.Command { return scheduler.NewSchedulerCommand() }),
}

func main() {
	names := strings.Join(slices.Sorted(maps.Keys(parts)), ", ")
	if len(os.Args) < 2 {
		fail("name a part: %s", names)
	}
	part, known := parts[os.Args[1]]
	if !known {
		fail("there is no part %q, only %s", os.Args[1], names)
	}
	os.Args = os.Args[1:]
	part()
}

// The commands are built only when wanted: building one registers flags and metrics of that part.
func command(build func() *cobra.Command) func() {
	return func() { os.Exit(cli.Run(build())) }
}

// CoreDNS runs plugins in the order of its directives, and has none for builds with plugins of one's own choice.
func dns() {
	dnsserver.Directives = []string{"bind", "errors", "ready", "cache", "kubernetes"}
	coremain.Run()
}

func fail(format string, values ...any) {
	fmt.Fprintf(os.Stderr, "kube: "+format+"\n", values...)
	os.Exit(2)
}
