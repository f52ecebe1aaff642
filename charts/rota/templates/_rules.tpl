{{/* Rights in every namespace whose ConsumerGroups are reconciled. docs/guide/operator.md has the same list. */}}
{{- define "rota.rules.groups" -}}
- {apiGroups: [rota.dev], resources: [consumergroups], verbs: [get, list, watch, patch]}
- {apiGroups: [rota.dev], resources: [consumergroups/status], verbs: [patch]}
- {apiGroups: [apps], resources: [deployments, statefulsets], verbs: [get, list, watch, patch]}
- {apiGroups: [apps], resources: [deployments/scale, statefulsets/scale], verbs: [patch]}
- {apiGroups: [""], resources: [configmaps], verbs: [get, list, watch, create, patch]}
- {apiGroups: [""], resources: [pods], verbs: [get, list, patch]}
- {apiGroups: [""], resources: [events], verbs: [list, create]}
- {apiGroups: [policy], resources: [poddisruptionbudgets], verbs: [get, list, watch, create, patch, delete]}
- {apiGroups: [autoscaling], resources: [horizontalpodautoscalers], verbs: [list]}
{{- if .Values.spark.enabled }}
- {apiGroups: [sparkoperator.k8s.io, spark.apache.org], resources: [sparkapplications], verbs: [get, list, create, delete]}
{{- end }}
{{- end -}}

{{/* Which kinds there are; only where all namespaces are watched. */}}
{{- define "rota.rules.discovery" -}}
- {apiGroups: [apiextensions.k8s.io], resources: [customresourcedefinitions], verbs: [list, watch]}
{{- end -}}
