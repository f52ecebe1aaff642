{{/*
Names. Every name fits: with the longest release name, and the longest suffix, of a certificate's Job.
*/}}
{{- define "rota.fullname" -}}
{{- /* Here, because Helm renders the templates in no order that could be relied on, and all of them need the name. */ -}}
{{- include "rota.validate" . -}}
{{- $name := .Values.fullnameOverride | default (ternary .Release.Name (printf "%s-%s" .Release.Name .Chart.Name) (contains .Chart.Name .Release.Name)) -}}
{{- if gt (len $name) 39 -}}
{{- /* Cut, and told apart by a hash of the whole. */ -}}
{{- printf "%s-%s" ($name | trunc 30 | trimSuffix "-") ($name | sha256sum | trunc 8) -}}
{{- else -}}
{{- $name -}}
{{- end -}}
{{- end -}}

{{- define "rota.operator.name" -}}{{ include "rota.fullname" . }}-operator{{- end -}}
{{- define "rota.coordinator.name" -}}{{ include "rota.fullname" . }}-coordinator{{- end -}}
{{- define "rota.coordinator.pods" -}}{{ include "rota.coordinator.name" . }}-pods{{- end -}}
{{- define "rota.certificates.name" -}}{{ include "rota.fullname" . }}-certificates{{- end -}}
{{- define "rota.authority.name" -}}{{ include "rota.fullname" . }}-authority{{- end -}}

{{/* Name of the list of Kafka clusters. The operator reads it once: a changed list has another name, and restarts it. */}}
{{- define "rota.kafka.name" -}}{{ include "rota.fullname" . }}-kafka-{{ .Values.kafka.clusters | toJson | sha256sum | trunc 8 }}{{- end -}}

{{/* Name of a cluster-scoped object of a part: no two releases of a cluster share it. Takes [root, part]. */}}
{{- define "rota.clusterName" -}}
{{- $root := index . 0 -}}
rota:{{ $root.Release.Namespace }}:{{ include "rota.fullname" $root }}:{{ index . 1 }}
{{- end -}}

{{/* Name of a part's service account. Takes [root, part]. */}}
{{- define "rota.serviceAccountName" -}}
{{- $root := index . 0 -}}
{{- $part := index . 1 -}}
{{- $account := (index $root.Values $part).serviceAccount -}}
{{- if $account.create -}}
{{- $account.name | default (include (printf "rota.%s.name" $part) $root) -}}
{{- else -}}
{{- $account.name -}}
{{- end -}}
{{- end -}}

{{/* Labels by which pods of a part are selected; they never change. Takes [root, part]. */}}
{{- define "rota.selector" -}}
app.kubernetes.io/name: rota
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{/* Labels of an object of a part. Takes [root, part]. */}}
{{- define "rota.labels" -}}
{{- $root := index . 0 -}}
{{ include "rota.selector" . }}
app.kubernetes.io/part-of: rota
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
helm.sh/chart: {{ $root.Chart.Name }}-{{ $root.Chart.Version | replace "+" "_" }}
{{- with $root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Metadata of a namespaced object. Takes [root, part, name]. */}}
{{- define "rota.metadata" -}}
name: {{ index . 2 }}
namespace: {{ (index . 0).Release.Namespace }}
labels:
  {{- include "rota.labels" . | nindent 2 }}
{{- end -}}

{{/* Image of a part. Takes [root, image]. */}}
{{- define "rota.image" -}}
{{- $root := index . 0 -}}
{{- $image := index . 1 -}}
{{- with $root.Values.images.registry }}{{ . | trimSuffix "/" }}/{{ end -}}
{{- $image.repository -}}
{{- if $image.digest -}}
@{{ $image.digest }}
{{- else -}}
:{{ $image.tag | default $root.Values.images.tag | default $root.Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{/* Fields of every pod: those that the Pod Security level "restricted" asks for, and pull Secrets. */}}
{{- define "rota.pod" -}}
enableServiceLinks: false
{{- with .Values.images.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: {{ .Values.podSecurity.user | int64 }}
  runAsGroup: {{ .Values.podSecurity.group | int64 }}
  fsGroup: {{ .Values.podSecurity.group | int64 }}
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile:
    type: RuntimeDefault
{{- end -}}

{{/* Security context of every container. */}}
{{- define "rota.container" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
# What ended a container stands in its status: `kubectl describe pod` shows it.
terminationMessagePolicy: FallbackToLogsOnError
{{- end -}}

{{/* Where pods of a part run. Takes [root, part]. */}}
{{- define "rota.placement" -}}
{{- $values := index (index . 0).Values (index . 1) -}}
terminationGracePeriodSeconds: {{ $values.terminationGracePeriodSeconds }}
{{- with $values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
topologySpreadConstraints:
{{- if $values.topologySpreadConstraints }}
  {{- toYaml $values.topologySpreadConstraints | nindent 2 }}
{{- else }}
{{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
  - maxSkew: 1
    topologyKey: {{ . }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "rota.selector" $ | nindent 8 }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Metadata of the pods of a part. Takes [root, part]. */}}
{{- define "rota.podMetadata" -}}
{{- $values := index (index . 0).Values (index . 1) -}}
labels:
  {{- /* Without the version: an upgrade of the chart alone restarts no pod. */}}
  {{- include "rota.selector" . | nindent 2 }}
  {{- with (index . 0).Values.commonLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- with $values.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with $values.podAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Probes of a part. The port answers as soon as the process runs. */}}
{{- define "rota.probes" -}}
startupProbe:
  httpGet: {path: /livez, port: http}
  periodSeconds: 1
  failureThreshold: 120
livenessProbe:
  httpGet: {path: /livez, port: http}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet: {path: /readyz, port: http}
  periodSeconds: 2
  timeoutSeconds: 5
{{- end -}}

{{/* Name of the Secret with a part's certificate. Takes [root, part]. */}}
{{- define "rota.tls.secret" -}}
{{- $root := index . 0 -}}
{{- $part := index . 1 -}}
{{- if eq $root.Values.tls.source "secret" -}}
{{- index $root.Values.tls.secrets $part -}}
{{- else -}}
{{- include (printf "rota.%s.name" $part) $root }}-tls
{{- end -}}
{{- end -}}

{{/* Volume with a part's certificate. A pod waits until all keys are there. Takes [root, part]. */}}
{{- define "rota.tls.volume" -}}
- name: tls
  secret:
    secretName: {{ include "rota.tls.secret" . }}
    defaultMode: 0440
    items:
      - {key: tls.crt, path: tls.crt}
      - {key: tls.key, path: tls.key}
      - {key: ca.crt, path: ca.crt}
{{- end -}}

{{/* DNS names of a Service, and of its pods if asked for, as a JSON list. Takes [root, service, pods]. */}}
{{- define "rota.dnsNames" -}}
{{- $root := index . 0 -}}
{{- $names := list -}}
{{- range $service := index . 1 -}}
{{- range $suffix := list "" ".svc" (printf ".svc.%s" $root.Values.clusterDomain) -}}
{{- $names = append $names (printf "%s.%s%s" $service $root.Release.Namespace $suffix) -}}
{{- end -}}
{{- end -}}
{{- $names | toJson -}}
{{- end -}}

{{- define "rota.operator.dnsNames" -}}
{{- include "rota.dnsNames" (list . (list (include "rota.operator.name" .))) -}}
{{- end -}}

{{- define "rota.coordinator.dnsNames" -}}
{{- $pods := include "rota.coordinator.pods" . -}}
{{- include "rota.dnsNames" (list . (list (include "rota.coordinator.name" .) $pods (printf "*.%s" $pods))) -}}
{{- end -}}

{{/* Who may connect to the servers: peers of a NetworkPolicy. */}}
{{- define "rota.clients" -}}
{{- if .Values.networkPolicy.clients -}}
{{- toYaml .Values.networkPolicy.clients }}
{{- else if .Values.watchNamespaces -}}
- namespaceSelector:
    matchExpressions:
      - {key: kubernetes.io/metadata.name, operator: In, values: {{ .Values.watchNamespaces | toJson }}}
{{- else -}}
- namespaceSelector: {}
{{- end }}
- podSelector:
    matchLabels:
      app.kubernetes.io/name: rota
      app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* Who may read metrics and readiness, beside the kubelet. */}}
{{- define "rota.readers" -}}
- podSelector:
    matchLabels:
      {{- include "rota.selector" (list . "test") | nindent 6 }}
{{- with .Values.networkPolicy.monitoring }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Egress rule for DNS, at any address: some clusters run it on the nodes. */}}
{{- define "rota.egress.dns" -}}
- ports:
    - {protocol: UDP, port: 53}
    - {protocol: TCP, port: 53}
{{- end -}}

{{/* Egress rule for the API server, whose address no selector names. */}}
{{- define "rota.egress.apiServer" -}}
- ports:
  {{- range .Values.networkPolicy.apiServerPorts }}
    - {protocol: TCP, port: {{ . }}}
  {{- end }}
{{- end -}}

{{/* Values that exclude each other, each refused in one sentence. */}}
{{- define "rota.validate" -}}
{{- $coordinator := .Values.coordinator -}}
{{- range $part := ternary (list "operator" "coordinator") (list "operator") $coordinator.enabled -}}
{{- if and (eq $.Values.tls.source "secret") (not (index $.Values.tls.secrets $part)) -}}
{{- fail (printf "tls.secrets.%s must be the name of a Secret with tls.crt, tls.key and ca.crt, because tls.source is secret" $part) -}}
{{- end -}}
{{- $account := (index $.Values $part).serviceAccount -}}
{{- if not (or $account.create $account.name) -}}
{{- fail (printf "%s.serviceAccount.name must be the name of a service account, because %s.serviceAccount.create is false" $part $part) -}}
{{- end -}}
{{- end -}}
{{- if and $coordinator.enabled (eq $coordinator.store.type "sqlite") (gt (int $coordinator.replicas) 1) -}}
{{- fail (printf "coordinator.replicas is %d, but coordinator.store.type sqlite has one replica; set coordinator.store.type to postgresql" (int $coordinator.replicas)) -}}
{{- end -}}
{{- if and $coordinator.enabled (eq $coordinator.store.type "postgresql") (not $coordinator.store.postgresql.urlSecret.name) -}}
{{- fail "coordinator.store.postgresql.urlSecret.name must be the name of a Secret with the connection URL, because coordinator.store.type is postgresql" -}}
{{- end -}}
{{- if and $coordinator.enabled (eq $coordinator.authentication "tokens") (not $coordinator.tokensSecret.name) -}}
{{- fail "coordinator.tokensSecret.name must be the name of a Secret with a tokens file, because coordinator.authentication is tokens" -}}
{{- end -}}
{{- if and $coordinator.enabled (ne $coordinator.authentication "none") (eq .Values.tls.source "none") -}}
{{- fail (printf "coordinator.authentication %s needs TLS, because tokens would be sent in plain text; set coordinator.authentication to none, or another tls.source" $coordinator.authentication) -}}
{{- end -}}
{{- $kafka := dict -}}
{{- range $cluster := .Values.kafka.clusters -}}
{{- if hasKey $kafka $cluster.name -}}
{{- fail (printf "kafka.clusters has two clusters of the name %s" $cluster.name) -}}
{{- end -}}
{{- $_ := set $kafka $cluster.name true -}}
{{- if and $cluster.saslMechanism (not $cluster.secret) -}}
{{- $keys := ternary "client-id and client-secret" "username and password" (eq $cluster.saslMechanism "OAUTHBEARER") -}}
{{- fail (printf "kafka.clusters needs a secret with %s for cluster %s, because its saslMechanism is %s" $keys $cluster.name $cluster.saslMechanism) -}}
{{- end -}}
{{- if ne (eq (default "" $cluster.saslMechanism) "OAUTHBEARER") (not (empty $cluster.tokenEndpointUrl)) -}}
{{- fail (printf "kafka.clusters needs tokenEndpointUrl with saslMechanism OAUTHBEARER, and only then, for cluster %s" $cluster.name) -}}
{{- end -}}
{{- end -}}
{{- if and (eq .Values.tls.source "cert-manager") (not .Values.tls.certManager.issuerRef.name) -}}
{{- fail "tls.certManager.issuerRef.name must be the name of an issuer, because tls.source is cert-manager" -}}
{{- end -}}
{{- end -}}
